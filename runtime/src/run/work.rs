//! Items of work. The sequencer plans the items, and the stages of a run process the items in
//! stream order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::Result;

use crate::error::Error;
use crate::stream::accountant::PlannedBatch;
use crate::stream::cursor::CarriedRow;
use crate::stream::group::Carry;
use crate::stream::origin::SegmentOrigin;

/// An item of a run's work. Items are processed in stream order. `T` holds the rows of an item, in
/// one of three states: requested, read or computed.
#[derive(Debug)]
pub(super) enum WorkItem<T> {
    /// An epoch begins.
    Begin(u64),
    /// Rows of an epoch, and the use of these rows.
    Rows {
        epoch: u64,
        work: T,
        delivery: Delivery,
    },
    /// Rows that are not needed, because the epoch already has all rows of its TAKE.
    Skipped,
    /// An error that ends the run, unless the rows before the error complete the TAKE of `epoch`.
    Failed { epoch: u64, error: Error },
}

/// The use of an item's rows.
#[derive(Debug)]
pub(super) enum Delivery {
    /// The rows complete these batches.
    Planned(Vec<PlannedBatch>),
    /// The rows are to be counted and grouped.
    Counted {
        /// Origin of the rows.
        origin: SegmentOrigin,
        /// True if the horizon was reached before these rows, so open packs and buckets must be
        /// completed first.
        flush: bool,
    },
    /// The rows are those that a cursor carries, in one or more items. The last of these items has
    /// the groups that all carried rows belong to; the other items have `None`.
    Restored(Option<Carry<(usize, CarriedRow)>>),
}

impl<T> WorkItem<T> {
    /// Creates the item of an error in `epoch`.
    pub(super) fn failed(epoch: u64, error: impl Into<Error>) -> Self {
        let error = error.into();
        Self::Failed { epoch, error }
    }

    /// Creates the item of an error that always ends the run.
    pub(super) fn lost(error: impl Into<Error>) -> Self {
        Self::failed(u64::MAX, error)
    }

    /// Processes the rows of this item with `next`, a stage of work such as reading or computing.
    /// Skips rows of an epoch that already has all rows of its TAKE.
    pub(super) async fn then<U, F: Future<Output = Result<U>>>(
        self,
        reached: TakeReached,
        next: impl FnOnce(T) -> F,
    ) -> WorkItem<U> {
        match self {
            Self::Begin(epoch) => WorkItem::Begin(epoch),
            Self::Rows {
                epoch,
                delivery: Delivery::Counted { .. },
                ..
            } if reached.has(epoch) => WorkItem::Skipped,
            Self::Rows {
                epoch,
                work,
                delivery,
            } => match next(work).await {
                Ok(work) => WorkItem::Rows {
                    epoch,
                    work,
                    delivery,
                },
                // Carried rows precede all rows of this run's TAKE, so errors in carried rows are
                // never dropped.
                Err(error) if matches!(delivery, Delivery::Restored(_)) => WorkItem::lost(error),
                Err(error) => WorkItem::failed(epoch, error),
            },
            Self::Skipped => WorkItem::Skipped,
            Self::Failed { epoch, error } => WorkItem::Failed { epoch, error },
        }
    }
}

/// The last epoch that is marked as having all rows of its TAKE. Work that runs ahead uses the mark
/// as a hint to skip rows. The driver alone decides, in stream order, when an epoch has all rows of
/// its TAKE.
#[derive(Debug, Clone, Default)]
pub(super) struct TakeReached(Arc<AtomicU64>);

impl TakeReached {
    /// Marks an epoch, and all epochs before it, as having all rows of their TAKE.
    pub(super) fn mark(&self, epoch: u64) {
        self.0.store(epoch + 1, Ordering::Relaxed);
    }

    pub(super) fn has(&self, epoch: u64) -> bool {
        self.0.load(Ordering::Relaxed) > epoch
    }
}
