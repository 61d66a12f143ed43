//! Writing of the rows that a cached prefix computes, and learning of rows that others have written.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::cache::{CacheStore, Entry, RowAddress, Writer};
use crate::task;

/// Time without new rows after which a shared writer publishes those that it holds. The client that
/// would ask for it has ended, or is slow.
const IDLE: Duration = Duration::from_secs(10);
/// Number of views that are remembered. Each client that runs now has one.
const VIEWS: usize = 64;

/// Newly computed rows of the prefix, which are to be stored in the cache.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(super) addresses: Vec<RowAddress>,
    pub(super) rows: RecordBatch,
    /// Addresses of rows that the prefix drops.
    pub(super) dropped: Vec<RowAddress>,
}

/// The writer of the entry that holds the rows of a cached prefix. Cheap to clone; all clones are
/// the same writer.
#[derive(Debug, Clone)]
pub(super) struct PrefixWriter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: CacheStore,
    entry: Entry,
    /// True if several processes write the entry at the same time, each the rows that it computes.
    is_shared: bool,
    writing: Mutex<Writing>,
    /// Time of the last rows, while a task waits to publish them.
    last_rows: std::sync::Mutex<Option<Instant>>,
    /// The views for which the entry was read again, oldest first.
    views: Mutex<VecDeque<u64>>,
}

#[derive(Debug)]
enum Writing {
    /// This process does not hold the entry's writer, and takes it for the next rows.
    NotYet,
    /// This process holds the entry's writer.
    Open(Box<Writer>),
    /// This process does not write in this run: another process writes, or the store failed.
    Left,
}

impl PrefixWriter {
    pub(super) fn new(store: CacheStore, entry: Entry, is_shared: bool) -> Self {
        Self(Arc::new(Shared {
            store,
            entry,
            is_shared,
            writing: Mutex::new(Writing::NotYet),
            last_rows: std::sync::Mutex::default(),
            views: Mutex::default(),
        }))
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.0.entry
    }

    /// Writes `fresh` to the store, unless another process is the only one that writes the entry, or
    /// the store has failed.
    pub(super) async fn store(&self, fresh: Fresh) {
        let writer = self.clone();
        self.uninterrupted(async move { writer.append(fresh).await })
            .await;
        if self.0.is_shared {
            self.publish_later();
        }
    }

    /// Does some work. A segment of a lease may be cancelled while it is stored, but the writer also
    /// holds rows of other leases, so the work of a shared writer goes on.
    async fn uninterrupted(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.0.is_shared {
            work.await;
        } else if let Err(why) = task::start(work).await {
            let error = task::lost("writing to the cache", why);
            log::warn!("{error}; nothing is cached");
        }
    }

    async fn append(&self, fresh: Fresh) {
        let mut writing = self.0.writing.lock().await;
        if let Writing::NotYet = &*writing {
            let writer = if self.0.is_shared {
                self.0.entry.shared_writer().await
            } else {
                self.0.entry.writer().await
            };
            *writing = match writer {
                Ok(Some(writer)) => Writing::Open(Box::new(writer)),
                Ok(None) => Writing::Left,
                Err(error) => {
                    log::warn!("{error}; nothing is cached");
                    Writing::Left
                }
            };
        }
        let Writing::Open(writer) = &mut *writing else {
            return;
        };
        let stored = writer.append(&fresh.addresses, &fresh.rows, &fresh.dropped);
        if let Err(error) = stored.await {
            log::warn!("{error}; nothing more is cached");
            *writing = Writing::Left;
        }
    }

    /// Publishes the rows once there were no new ones for [`IDLE`].
    fn publish_later(&self) {
        let mut last = self.last_rows();
        if last.replace(Instant::now()).is_some() {
            return;
        }
        drop(last);
        let writer = self.clone();
        // If the task panics, the rows wait for the next publication.
        drop(task::start(async move {
            while let Some(until) = writer.next_publication() {
                sleep_until(until).await;
            }
            writer.publish().await;
        }));
    }

    /// Returns the time at which the rows are to be published; `None` if that is now.
    fn next_publication(&self) -> Option<Instant> {
        let mut last = self.last_rows();
        let until = last.map(|last| last + IDLE);
        let until = until.filter(|until| *until > Instant::now());
        if until.is_none() {
            *last = None;
        }
        until
    }

    fn last_rows(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        let last = self.0.last_rows.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }

    /// If this process writes the entry, writes the rows that are held in memory to the store.
    /// Otherwise, the rows that other processes have written become visible.
    pub(super) async fn flush(&self) {
        let mut writing = self.0.writing.lock().await;
        let done = match &mut *writing {
            Writing::Open(writer) => writer.flush().await,
            Writing::NotYet | Writing::Left => self.0.entry.refresh().await,
        };
        if let Err(error) = done {
            log::warn!("{error}; nothing more is cached");
            *writing = Writing::Left;
        }
    }

    /// Writes the rows that are held in memory to the store. Then another process may write the
    /// entry.
    pub(super) async fn publish(&self) {
        let writer = self.clone();
        let publish = async move {
            let mut writing = writer.0.writing.lock().await;
            let done = match std::mem::replace(&mut *writing, Writing::NotYet) {
                Writing::Open(writer) => writer.finish().await,
                Writing::NotYet | Writing::Left => writer.0.store.save_bandwidth().await,
            };
            if let Err(error) = done {
                log::warn!("{error}");
            }
        };
        self.uninterrupted(publish).await;
    }

    /// Returns true if this process does not write the entry. Returns false while rows are written.
    ///
    /// Does not wait for the lock. The sequencer, which calls this, is polled only while the run asks for
    /// segments: it could be given the lock while the run waits for the lock in [`flush`](Self::flush).
    pub(super) fn has_left(&self) -> bool {
        let writing = self.0.writing.try_lock();
        writing.is_ok_and(|writing| matches!(*writing, Writing::Left))
    }

    /// Makes the rows visible that other processes had written when a client began to use `view`.
    pub(super) async fn see(&self, view: u64) {
        // The lock is held meanwhile, because the leases that begin now need the same rows.
        let mut views = self.0.views.lock().await;
        if views.contains(&view) {
            return;
        }
        if let Err(error) = self.0.entry.refresh().await {
            log::warn!("{error}; rows that are cached may be computed again");
        }
        if views.len() == VIEWS {
            views.pop_front();
        }
        views.push_back(view);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use futures::FutureExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::cache::testing::address;
    use crate::cache::{CacheKey, CacheOptions, EntryInfo, Stores};
    use crate::objects::ObjectStores;

    /// A store in memory, and the entries that processes open in it.
    struct Shared {
        stores: Stores,
    }

    impl Shared {
        fn new() -> Self {
            let objects = ObjectStores::default();
            let memory = Arc::new(InMemory::new());
            objects.register("memory://cache", memory).unwrap();
            let stores = Stores::new(objects);
            Self { stores }
        }

        /// Opens the entry as another process does.
        async fn open(&self) -> PrefixWriter {
            let location = "memory://cache/rows";
            let store = self.stores.open(location, CacheOptions::default()).await;
            let store = store.unwrap();
            let info = EntryInfo::new("a prefix", rows(0..0).schema(), 1);
            let entry = store.entry(CacheKey::new([1; 32]), info).await.unwrap();
            PrefixWriter::new(store, entry, true)
        }

        /// Returns the number of rows that another process finds.
        async fn found(&self) -> u64 {
            self.open().await.entry().rows()
        }
    }

    fn rows(rows: std::ops::Range<u64>) -> RecordBatch {
        let values = Int64Array::from_iter_values(rows.map(|row| row as i64));
        let column = Arc::new(values) as ArrayRef;
        RecordBatch::try_from_iter_with_nullable([("c0", column, true)]).unwrap()
    }

    fn fresh(range: std::ops::Range<u64>) -> Fresh {
        Fresh {
            addresses: range.clone().map(|row| address(1, row)).collect(),
            rows: rows(range),
            dropped: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_published_when_asked_or_when_no_others_follow() {
        let shared = Shared::new();
        let (one, other) = (shared.open().await, shared.open().await);
        one.store(fresh(0..3)).await;
        other.store(fresh(3..5)).await;
        assert_eq!(shared.found().await, 0);
        one.publish().await;
        assert_eq!(shared.found().await, 3);
        // A view that was not seen before shows them.
        assert_eq!(other.entry().rows(), 0);
        other.see(7).await;
        assert_eq!(other.entry().rows(), 3);
        tokio::time::sleep(IDLE / 2).await;
        other.store(fresh(5..6)).await;
        tokio::time::sleep(IDLE * 3 / 4).await;
        assert_eq!(shared.found().await, 3);
        tokio::time::sleep(IDLE).await;
        assert_eq!(shared.found().await, 6);
        // It goes on afterwards.
        other.store(fresh(6..7)).await;
        tokio::time::sleep(IDLE * 2).await;
        assert_eq!(shared.found().await, 7);
        one.see(7).await;
        assert_eq!(one.entry().rows(), 7);
        other.store(fresh(7..8)).await;
        other.publish().await;
        one.see(7).await;
        assert_eq!(one.entry().rows(), 7);
    }

    #[tokio::test]
    async fn who_asks_during_a_write_does_not_wait_for_the_writer() {
        let writer = Shared::new().open().await;
        let mut writing = writer.0.writing.lock().await;
        assert!(!writer.has_left());
        *writing = Writing::Left;
        assert!(!writer.has_left());
        drop(writing);
        assert!(writer.has_left());
        writer.flush().await;
    }

    #[tokio::test]
    async fn a_cancelled_segment_takes_no_rows_of_others_along() {
        let shared = Shared::new();
        let writer = shared.open().await;
        writer.store(fresh(0..3)).await;
        for row in 3..9 {
            // The future is dropped after it was polled once.
            assert!(writer.store(fresh(row..row + 1)).now_or_never().is_none());
            assert!(writer.publish().now_or_never().is_none());
        }
        writer.publish().await;
        assert!(shared.found().await >= 3);
        writer.store(fresh(0..9)).await;
        writer.publish().await;
        assert_eq!(shared.found().await, 9);
    }
}
