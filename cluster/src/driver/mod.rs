//! Runs a window of leases over an engine.

mod actions;
mod meter;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use tokio::time::{Instant, Sleep, sleep_until};

use self::meter::StreamMeter;
use crate::codec::LeaseCodec;
use crate::engine::{EngineError, LeaseEngine, LeaseOutput, StreamReport, WorkerId};
use crate::error::ClusterError;
use crate::window::{
    AttemptId, LeaseSegment, LeaseWindow, SegmentInfo, WindowEvent, WindowSettings, WindowStatus,
};

/// Time between two looks at the list of workers.
const WORKERS_PERIOD: Duration = Duration::from_secs(1);

/// Number of streams of this process.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// The result of a segment.
#[derive(Debug, Clone)]
pub struct SegmentResult<R> {
    /// Number of the segment in its stream.
    pub sequence: u64,
    /// The result, or the results of the segment's pieces in the order of their rows if it was
    /// split.
    pub results: Vec<R>,
}

type EngineOutcome = Result<LeaseOutput, EngineError>;

/// A lease that an engine runs.
struct SubmittedLease<N> {
    segments: Vec<LeaseSegment<N>>,
    cancel: AbortHandle,
}

/// Number and estimated size of the segments that the window wants.
struct SegmentWish {
    segments: usize,
    bytes: u64,
    work: Duration,
}

/// Results of a stream of segments, in order. Leases run while the stream is polled, and dropping
/// it cancels them. A slow consumer should poll the stream in a task of its own. A result counts as
/// consumed when the next one is asked for.
pub struct LeaseStream<C: LeaseCodec, S> {
    engine: Arc<dyn LeaseEngine>,
    codec: C,
    segments: Pin<Box<S>>,
    window: LeaseWindow<C::Segment, C::Output>,
    started: Instant,
    wish: Option<SegmentWish>,
    attempts: FuturesUnordered<Abortable<BoxFuture<'static, (AttemptId, EngineOutcome)>>>,
    submitted: HashMap<AttemptId, SubmittedLease<C::Segment>>,
    timer: Option<Pin<Box<Sleep>>>,
    list: BoxFuture<'static, Result<Vec<WorkerId>, EngineError>>,
    workers: Vec<WorkerId>,
    delivered: VecDeque<SegmentResult<C::Output>>,
    /// True if the consumer has a result that is not consumed yet.
    is_lent: bool,
    error: Option<ClusterError>,
    has_ended: bool,
    /// Number of the stream in this process.
    number: u64,
    meter: StreamMeter,
    /// Text of the last warning about a failed attempt.
    last_warning: Option<String>,
}

// Nothing is pinned in place: the pinned fields are boxes.
impl<C: LeaseCodec, S> Unpin for LeaseStream<C, S> {}

/// Computes `segments` through `engine`, and returns their results in order. Needs a tokio runtime
/// with timers when it is polled.
pub fn run<C, S>(
    engine: Arc<dyn LeaseEngine>,
    segments: S,
    codec: C,
    settings: WindowSettings,
) -> LeaseStream<C, S>
where
    C: LeaseCodec,
    S: Stream<Item = SegmentInfo<C::Segment>>,
{
    let started = Instant::now();
    let mut stream = LeaseStream {
        list: list_workers(Arc::clone(&engine), started),
        engine,
        codec,
        segments: Box::pin(segments),
        window: LeaseWindow::new(settings),
        started,
        wish: None,
        attempts: FuturesUnordered::new(),
        submitted: HashMap::new(),
        timer: None,
        workers: Vec::new(),
        delivered: VecDeque::new(),
        is_lent: false,
        error: None,
        has_ended: false,
        number: STREAMS.fetch_add(1, Ordering::Relaxed),
        meter: StreamMeter::default(),
        last_warning: None,
    };
    stream.report(false);
    stream.act();
    stream
}

/// Returns the workers of an engine at the time `at`.
fn list_workers(
    engine: Arc<dyn LeaseEngine>,
    at: Instant,
) -> BoxFuture<'static, Result<Vec<WorkerId>, EngineError>> {
    async move {
        if at > Instant::now() {
            sleep_until(at).await;
        }
        engine.workers().await
    }
    .boxed()
}

impl<C: LeaseCodec, S> LeaseStream<C, S> {
    /// Returns the status of the window.
    pub fn status(&self) -> WindowStatus {
        self.window.status()
    }

    /// Tells the engine the state of the stream.
    fn report(&mut self, has_ended: bool) {
        let status = self.window.status();
        let reading = self.meter.read(self.started.elapsed());
        self.engine.report(StreamReport {
            stream: self.number,
            job: None,
            rows: reading.rows,
            rows_per_second: reading.rows_per_second,
            wait_share: reading.wait_share,
            leases: status.leases as u64,
            attempts: status.attempts as u64,
            buffer_bytes: status.used_bytes,
            buffer_limit: status.bound_bytes,
            set_aside: status.set_aside,
            has_ended,
        });
    }

    /// Ends the stream before segment `sequence`, or behind the results that are ready if there are
    /// more. Leases behind it are cancelled.
    pub fn skip_from(&mut self, sequence: u64) {
        self.send(WindowEvent::SkipFrom(sequence));
    }
}

impl<C, S> LeaseStream<C, S>
where
    C: LeaseCodec,
    S: Stream<Item = SegmentInfo<C::Segment>>,
{
    /// Passes on the segments that the window wants, as far as they are known.
    fn poll_segments(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(wish) = self.wish.take() else {
            return false;
        };
        let (mut found, mut bytes, mut work) = (Vec::new(), 0u64, Duration::ZERO);
        let mut is_last = false;
        let mut is_delayed = false;
        while found.len() < wish.segments && bytes < wish.bytes && work < wish.work {
            match self.segments.poll_next_unpin(cx) {
                Poll::Ready(Some(segment)) => {
                    bytes = bytes.saturating_add(segment.bytes);
                    work += segment.work;
                    found.push(segment);
                }
                Poll::Ready(None) => {
                    is_last = true;
                    break;
                }
                Poll::Pending => {
                    is_delayed = true;
                    break;
                }
            }
        }
        let has_news = !found.is_empty() || is_last;
        if found.is_empty() && is_delayed {
            self.wish = Some(wish);
        }
        if !found.is_empty() {
            self.send(WindowEvent::SegmentsAdded(found));
        }
        if is_last {
            self.send(WindowEvent::EndOfStream);
        }
        if is_delayed {
            self.send(WindowEvent::SegmentsDelayed);
        }
        has_news
    }

    /// Receives what happened since the last time. Returns `true` if something did.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_news = false;
        if let Some(timer) = &mut self.timer
            && timer.as_mut().poll_unpin(cx).is_ready()
        {
            self.timer = None;
            self.send(WindowEvent::Tick);
            has_news = true;
        }
        if let Poll::Ready(list) = self.list.poll_unpin(cx) {
            self.report(false);
            self.list = list_workers(Arc::clone(&self.engine), Instant::now() + WORKERS_PERIOD);
            has_news = true;
            match list {
                Ok(workers) if workers != self.workers => {
                    self.workers.clone_from(&workers);
                    self.send(WindowEvent::WorkersChanged(workers));
                }
                Ok(_) => {}
                Err(error) => tracing::debug!("the workers are unknown: {error}"),
            }
        }
        has_news |= self.poll_segments(cx);
        // Attempts come last, so that those that were just submitted begin now.
        while let Poll::Ready(Some(ended)) = self.attempts.poll_next_unpin(cx) {
            has_news = true;
            if let Ok((attempt, outcome)) = ended {
                self.attempt_ended(attempt, outcome);
            }
            if !self.delivered.is_empty() {
                break;
            }
        }
        has_news
    }
}

impl<C, S> Stream for LeaseStream<C, S>
where
    C: LeaseCodec,
    S: Stream<Item = SegmentInfo<C::Segment>>,
{
    type Item = Result<SegmentResult<C::Output>, ClusterError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.is_lent) {
            self.send(WindowEvent::Consumed);
        }
        while !self.has_ended && self.poll_events(cx) && self.delivered.is_empty() {}
        let now = self.started.elapsed();
        if let Some(result) = self.delivered.pop_front() {
            self.meter.resume(now);
            self.is_lent = true;
            return Poll::Ready(Some(Ok(result)));
        }
        if !self.has_ended {
            self.meter.wait(now);
            return Poll::Pending;
        }
        self.meter.resume(now);
        self.attempts.clear();
        Poll::Ready(self.error.take().map(Err))
    }
}

impl<C: LeaseCodec, S> Drop for LeaseStream<C, S> {
    fn drop(&mut self) {
        self.report(true);
    }
}

impl<C: LeaseCodec, S> fmt::Debug for LeaseStream<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStream")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
