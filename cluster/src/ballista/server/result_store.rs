//! Results of leases on a worker, until their clients fetch them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayData, RecordBatch};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ballista::lock::lock;
use crate::handler::{HandlerError, HandlerOutput};

/// Unit in which the store's room is counted, so that it fits into a semaphore.
const UNIT: usize = 1 << 10;

/// The outcome of a lease.
pub(crate) type LeaseOutcome = Result<HandlerOutput, HandlerError>;

/// An outcome that was taken from the store. Its room is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct StoredResult {
    pub(crate) outcome: LeaseOutcome,
    _room: OwnedSemaphorePermit,
}

/// Results by job, bounded in bytes.
#[derive(Debug)]
pub(crate) struct ResultStore {
    room: Arc<Semaphore>,
    units: u32,
    results: Mutex<HashMap<String, (StoredResult, Instant)>>,
}

impl ResultStore {
    /// Creates an empty store of at most `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        let most = (u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        let units = u32::try_from((capacity / UNIT).clamp(1, most)).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(units as usize));
        Self {
            room,
            units,
            results: Mutex::default(),
        }
    }

    /// Stores the outcome of `job`. Waits for room if the store is full, which fetching and
    /// eviction make. A result that is larger than the store is replaced by an error.
    pub(crate) async fn put(&self, job: String, outcome: LeaseOutcome) {
        let bytes = size(&outcome);
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let (outcome, units) = if units > self.units {
            let cause = format!(
                "the result has {bytes} bytes, and the worker keeps at most {}; give the worker \
                 a larger store of results, or ask for less in a lease",
                self.units as usize * UNIT
            );
            (Err(HandlerError::Unfit { cause }), 1)
        } else {
            (outcome, units.max(1))
        };
        // The semaphore is never closed.
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(units).await else {
            return;
        };
        let stored = StoredResult {
            outcome,
            _room: room,
        };
        lock(&self.results).insert(job, (stored, Instant::now()));
    }

    /// Takes the outcome of `job` from the store.
    pub(crate) fn take(&self, job: &str) -> Option<StoredResult> {
        lock(&self.results).remove(job).map(|(stored, _)| stored)
    }

    /// Returns the bytes of the store that are in use, and all of them.
    pub(crate) fn room(&self) -> (u64, u64) {
        let units = self.units as usize;
        let used = units.saturating_sub(self.room.available_permits());
        ((used * UNIT) as u64, (units * UNIT) as u64)
    }

    /// Removes the results that nobody fetched for `timeout`.
    pub(crate) fn evict(&self, timeout: Duration) {
        lock(&self.results).retain(|job, (_, stored)| {
            let keep = stored.elapsed() < timeout;
            if !keep {
                tracing::info!(job, "nobody fetched the result of a lease");
            }
            keep
        });
    }
}

/// Returns the bytes of memory of an outcome.
fn size(outcome: &LeaseOutcome) -> usize {
    match outcome {
        Ok(output) => {
            let mut buffers = HashMap::new();
            for column in output.batches.iter().flat_map(RecordBatch::columns) {
                add_buffers(&column.to_data(), &mut buffers);
            }
            buffers.values().sum::<usize>() + output.summary.len()
        }
        Err(HandlerError::Unfit { cause }) => cause.len(),
    }
}

/// Adds the sizes of the buffers of `data` by their addresses. Batches that were cut from one
/// share its buffers, which are then counted once.
fn add_buffers(data: &ArrayData, buffers: &mut HashMap<usize, usize>) {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    for buffer in data.buffers().iter().chain(nulls) {
        buffers.insert(buffer.data_ptr().as_ptr() as usize, buffer.capacity());
    }
    data.child_data()
        .iter()
        .for_each(|child| add_buffers(child, buffers));
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use bytes::Bytes;
    use futures::FutureExt;

    use super::*;

    fn output(bytes: usize) -> LeaseOutcome {
        Ok(HandlerOutput {
            batches: vec![],
            summary: Bytes::from(vec![0; bytes]),
        })
    }

    #[tokio::test]
    async fn results_are_taken_once() {
        let store = ResultStore::new(10 * UNIT);
        store.put("job".to_owned(), output(5)).await;
        let taken = store.take("job").unwrap();
        assert_eq!(taken.outcome.unwrap().summary.len(), 5);
        assert!(store.take("job").is_none());
    }

    #[tokio::test]
    async fn a_full_store_waits_until_a_result_was_sent() {
        let store = ResultStore::new(10 * UNIT);
        store.put("first".to_owned(), output(8 * UNIT)).await;
        let mut second = Box::pin(store.put("second".to_owned(), output(8 * UNIT)));
        assert!((&mut second).now_or_never().is_none());
        let taken = store.take("first");
        assert!(
            (&mut second).now_or_never().is_none(),
            "the result is still being sent"
        );
        drop(taken);
        second.await;
        assert!(store.take("second").is_some());
    }

    #[tokio::test]
    async fn results_that_nobody_fetches_make_room() {
        let store = ResultStore::new(10 * UNIT);
        store.put("first".to_owned(), output(8 * UNIT)).await;
        store.evict(Duration::from_secs(3600));
        assert_eq!(store.room.available_permits(), 2);
        store.evict(Duration::ZERO);
        assert_eq!(store.room.available_permits(), 10);
        assert!(store.take("first").is_none());
    }

    #[test]
    fn shared_buffers_are_counted_once() {
        let values = Int64Array::from_iter((0..1024).map(|n| (n % 2 == 0).then_some(n)));
        let batch = RecordBatch::try_from_iter([("n", Arc::new(values) as ArrayRef)]).unwrap();
        let stored = |batches| {
            size(&Ok(HandlerOutput {
                batches,
                summary: Bytes::new(),
            }))
        };
        let whole = stored(vec![batch.clone()]);
        assert!((8 * 1024..9 * 1024).contains(&whole), "{whole}");
        let slices = (0..64).map(|n| batch.slice(16 * n, 16)).collect();
        assert_eq!(stored(slices), whole);
        assert_eq!(stored(vec![]), 0);
    }

    #[tokio::test]
    async fn a_result_larger_than_the_store_is_an_error() {
        let store = ResultStore::new(10 * UNIT);
        store.put("job".to_owned(), output(11 * UNIT)).await;
        let error = store.take("job").unwrap().outcome.unwrap_err();
        assert!(error.to_string().contains("11264 bytes"), "{error}");
    }
}
