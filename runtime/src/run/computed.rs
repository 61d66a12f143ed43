//! Work items whose segments an engine computes, combined with the computed rows.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use datafusion::common::internal_datafusion_err;
use futures::stream::BoxStream;
use futures::task::AtomicWaker;
use futures::{Stream, StreamExt};

use super::output::Computed;
use super::segment_engine::SegmentEngine;
use super::work::{Delivery, TakeReached, WorkItem};
use crate::error::Result;
use crate::fragment::row_batch::RowBatch;
use crate::job::OpenJob;
use crate::prefetch::prefetched;
use crate::segment::{OrderedSegment, SegmentName};

/// Number of computed segments that wait outside the engine for the tail.
const SEGMENTS_AHEAD: usize = 1;

/// Items of work whose segments an engine has, in stream order.
#[derive(Default)]
struct WaitingItems {
    items: Mutex<VecDeque<WorkItem<()>>>,
    /// Wakes the stream of combined items when an item is added.
    waker: AtomicWaker,
}

impl WaitingItems {
    fn lock(&self) -> MutexGuard<'_, VecDeque<WorkItem<()>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, item: WorkItem<()>) {
        self.lock().push_back(item);
        self.waker.wake();
    }
}

/// Has `engine` compute the segments of `work`. Returns the work items with computed rows, in
/// stream order.
pub(super) fn computed_by(
    engine: &dyn SegmentEngine,
    job: &Arc<OpenJob>,
    work: BoxStream<'static, WorkItem<OrderedSegment>>,
    reached: TakeReached,
) -> BoxStream<'static, Computed> {
    let waiting = Arc::<WaitingItems>::default();
    let named = {
        let waiting = Arc::clone(&waiting);
        work.filter_map(move |item| {
            let (item, name) = named(item, &reached);
            waiting.add(item);
            async move {
                // Epochs without segments must not keep this task from being aborted.
                if name.is_none() {
                    tokio::task::yield_now().await;
                }
                name
            }
        })
    };
    // The engine has to go on while the consumer of the batches is busy.
    let results = prefetched(engine.compute(job, named.boxed()), SEGMENTS_AHEAD);
    Combined {
        waiting,
        results,
        ready: None,
        has_ended: false,
    }
    .boxed()
}

/// Splits an item of work into the item without its segment, and the name of the segment. Rows of
/// an epoch that already has all rows of its TAKE need not be computed.
fn named(
    item: WorkItem<OrderedSegment>,
    reached: &TakeReached,
) -> (WorkItem<()>, Option<SegmentName>) {
    match item {
        WorkItem::Begin(epoch) => (WorkItem::Begin(epoch), None),
        WorkItem::Skipped => (WorkItem::Skipped, None),
        WorkItem::Failed { epoch, error } => (WorkItem::Failed { epoch, error }, None),
        WorkItem::Rows {
            epoch,
            delivery: Delivery::Counted { .. },
            ..
        } if reached.has(epoch) => (WorkItem::Skipped, None),
        WorkItem::Rows {
            epoch,
            work,
            delivery,
        } => {
            let item = WorkItem::Rows {
                epoch,
                work: (),
                delivery,
            };
            (item, Some(work.name()))
        }
    }
}

/// Work items combined with the rows that an engine computed for them.
struct Combined {
    waiting: Arc<WaitingItems>,
    results: BoxStream<'static, Result<Vec<RowBatch>>>,
    /// Rows of the next segment; `None` if they are not computed yet.
    ready: Option<Result<Vec<RowBatch>>>,
    /// True if `results` has ended.
    has_ended: bool,
}

impl Combined {
    /// Returns the next item, if it has no segment.
    fn next_without_rows(&self) -> Option<Computed> {
        let mut waiting = self.waiting.lock();
        if matches!(waiting.front(), Some(WorkItem::Rows { .. })) {
            return None;
        }
        Some(match waiting.pop_front()? {
            WorkItem::Begin(epoch) => WorkItem::Begin(epoch),
            WorkItem::Failed { epoch, error } => WorkItem::Failed { epoch, error },
            WorkItem::Rows { .. } | WorkItem::Skipped => WorkItem::Skipped,
        })
    }

    /// Combines the next item with the rows of its segment.
    fn combine(&self, rows: Result<Vec<RowBatch>>) -> Computed {
        let item = self.waiting.lock().pop_front();
        let Some(WorkItem::Rows {
            epoch, delivery, ..
        }) = item
        else {
            return WorkItem::lost(internal_datafusion_err!(
                "an engine computed a segment that was not requested"
            ));
        };
        match rows {
            Ok(work) => WorkItem::Rows {
                epoch,
                work,
                delivery,
            },
            // Carried rows precede all rows of this run's TAKE, so errors in carried rows are never
            // dropped.
            Err(error) if matches!(delivery, Delivery::Restored(_)) => WorkItem::lost(error),
            Err(error) => WorkItem::failed(epoch, error),
        }
    }
}

impl Stream for Combined {
    type Item = Computed;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Computed>> {
        self.waiting.waker.register(cx.waker());
        if self.ready.is_none()
            && !self.has_ended
            && let Poll::Ready(rows) = self.results.poll_next_unpin(cx)
        {
            self.has_ended = rows.is_none();
            self.ready = rows;
        }
        // The engine takes items without a segment from the work together with those before and
        // after them, so such items may precede the segment that is ready.
        if let Some(item) = self.next_without_rows() {
            return Poll::Ready(Some(item));
        }
        if let Some(rows) = self.ready.take() {
            return Poll::Ready(Some(self.combine(rows)));
        }
        if !self.has_ended {
            return Poll::Pending;
        }
        if self.waiting.lock().is_empty() {
            return Poll::Ready(None);
        }
        self.waiting.lock().clear();
        Poll::Ready(Some(WorkItem::lost(internal_datafusion_err!(
            "an engine ended before it had computed all segments"
        ))))
    }
}
