//! Actions of a window, done by its driver.

use futures::FutureExt;
use futures::future::{AbortHandle, Abortable};
use tokio::time::sleep_until;

use super::{EngineOutcome, LeaseStream, SegmentResult, SegmentWish, SubmittedLease};
use crate::codec::{LeaseCodec, PoisonPiece};
use crate::engine::{EngineError, LeaseRequest};
use crate::window::{AttemptId, LeaseSegment, WindowAction, WindowEvent};

impl<C: LeaseCodec, S> LeaseStream<C, S> {
    /// Passes an event to the window, and does what the window asks for.
    pub(super) fn send(&mut self, event: WindowEvent<C::Segment, C::Output>) {
        let now = self.started.elapsed();
        self.window.handle(now, event);
        self.act();
    }

    /// Does what the window asks for.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.window.next_action() {
            match action {
                WindowAction::WantSegments {
                    segments,
                    bytes,
                    work,
                } => {
                    self.wish = Some(SegmentWish {
                        segments,
                        bytes,
                        work,
                    });
                }
                WindowAction::Submit {
                    attempt,
                    segments,
                    affinity,
                    staging,
                    order,
                    avoid,
                    ..
                } => {
                    let request = LeaseRequest {
                        payload: self.codec.encode(&segments),
                        affinity,
                        staging,
                        order,
                        avoid,
                    };
                    self.submit(attempt, segments, request);
                }
                WindowAction::Cancel { attempt } => {
                    if let Some(lease) = self.submitted.remove(&attempt) {
                        lease.cancel.abort();
                    }
                }
                WindowAction::Deliver { sequence, results } => {
                    self.delivered
                        .push_back(SegmentResult { sequence, results });
                }
                WindowAction::SplitSegment {
                    piece,
                    name,
                    max_rows,
                    ..
                } => {
                    let pieces = self.codec.split(&name, max_rows);
                    let event = WindowEvent::SegmentSplit { piece, pieces };
                    self.window.handle(self.started.elapsed(), event);
                }
                WindowAction::SettlePoison {
                    piece,
                    name,
                    rows,
                    workers,
                    cause,
                } => {
                    let poison = PoisonPiece {
                        piece,
                        rows,
                        workers,
                        cause,
                    };
                    let result = self.codec.settle_poison(&name, poison);
                    let event = WindowEvent::PoisonSettled { piece, result };
                    self.window.handle(self.started.elapsed(), event);
                }
                WindowAction::WakeAt(time) => {
                    self.timer = Some(Box::pin(sleep_until(self.started + time)));
                }
                WindowAction::Finish => self.has_ended = true,
                WindowAction::Fail(error) => {
                    self.error = Some(error);
                    self.has_ended = true;
                }
            }
        }
    }

    fn submit(
        &mut self,
        attempt: AttemptId,
        segments: Vec<LeaseSegment<C::Segment>>,
        request: LeaseRequest,
    ) {
        let result = self.engine.submit(request);
        let (cancel, registration) = AbortHandle::new_pair();
        let future = async move { (attempt, result.await) }.boxed();
        self.attempts.push(Abortable::new(future, registration));
        let lease = SubmittedLease { segments, cancel };
        self.submitted.insert(attempt, lease);
    }

    /// Receives the outcome of an attempt.
    pub(super) fn attempt_ended(&mut self, attempt: AttemptId, outcome: EngineOutcome) {
        let Some(lease) = self.submitted.remove(&attempt) else {
            return;
        };
        let decoded = outcome.and_then(|output| {
            let worker = output.worker.clone();
            let rows = output.batches.iter().map(|batch| batch.num_rows() as u64);
            let rows: u64 = rows.sum();
            match self.codec.decode(&lease.segments, output) {
                Ok(results) => Ok((worker, results, rows)),
                Err(cause) => Err(EngineError::WorkerUnfit { worker, cause }),
            }
        });
        match decoded {
            Ok((worker, results, rows)) => {
                self.meter.add_rows(rows);
                self.send(WindowEvent::AttemptDone {
                    attempt,
                    worker,
                    results: results.segments,
                    took: results.took,
                });
            }
            Err(error) => {
                let warning = error.to_string();
                // While the scheduler is away, each lease fails with the same error many times.
                if self.last_warning.as_ref() != Some(&warning) {
                    tracing::warn!(
                        "an attempt to compute a lease failed, and is repeated: {warning}"
                    );
                    self.last_warning = Some(warning);
                }
                self.send(WindowEvent::AttemptFailed { attempt, error });
            }
        }
    }
}
