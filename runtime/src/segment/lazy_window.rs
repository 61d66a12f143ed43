//! Lazily staged windows, and the cache through which runs share them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
use forebay_planner::clauses::ShuffleWindow;
use tokio::sync::OnceCell;

use super::context::SegmentContext;
use super::staging::stage;
use super::window::Window;
use crate::order::{self, ORDER_BYTES, StoredRow, WindowName, WindowSplits};
use crate::task::owned;

/// A window that is staged when its rows are first needed, or earlier if [`begin`](Self::begin) is
/// called.
#[derive(Debug)]
pub(crate) struct LazyWindow {
    staging: Arc<Staging>,
    /// Task that stages the window ahead of time. Dropping the `LazyWindow` aborts the task.
    ahead: OnceLock<SpawnedTask<()>>,
}

#[derive(Debug)]
struct Staging {
    context: SegmentContext,
    splits: WindowSplits,
    window: OnceCell<Arc<Window>>,
}

impl Staging {
    async fn get(&self) -> Result<Arc<Window>> {
        let staged = async || stage(&self.context, &self.splits).await.map(Arc::new);
        self.window.get_or_try_init(staged).await.map(Arc::clone)
    }
}

impl LazyWindow {
    /// Creates a window of `splits`, and does not stage it yet.
    pub(super) fn new(context: &SegmentContext, splits: WindowSplits) -> Self {
        Self {
            staging: Arc::new(Staging {
                context: context.clone(),
                splits,
                window: OnceCell::new(),
            }),
            ahead: OnceLock::new(),
        }
    }

    /// Returns the window, staging it if necessary.
    pub(super) async fn get(&self) -> Result<Arc<Window>> {
        self.staging.get().await
    }

    /// Starts to stage the window in the background. If staging fails, the next call of
    /// [`get`](Self::get) stages the window again and returns any error.
    pub(crate) fn begin(&self) {
        self.ahead.get_or_init(|| {
            let staging = Arc::clone(&self.staging);
            owned(async move { drop(staging.get().await) })
        });
    }

    /// Returns true if a split belongs to the window.
    pub(crate) fn has(&self, split: u32) -> bool {
        self.staging.splits.splits.contains(&split)
    }

    /// Returns the memory that the staged rows take, in bytes; 0 before they are staged.
    fn reserved_bytes(&self) -> u64 {
        let window = self.staging.window.get();
        window.map_or(0, |window| window.reserved_bytes())
    }

    /// Orders the rows of the window for the pass with key `key`. If `is_pruned` is true, the
    /// window is staged first, and rows that pruning removed are left out. If several passes share
    /// the window, its splits are in the order of the first pass, which does not matter, because
    /// the rows are sorted.
    ///
    /// # Errors
    /// Fails if the window has more rows than can be sorted within the memory limit, or if the
    /// window cannot be staged.
    pub(crate) async fn order(
        &self,
        shuffle: Option<ShuffleWindow>,
        key: u64,
        is_pruned: bool,
    ) -> Result<Vec<StoredRow>> {
        let staged = if is_pruned {
            Some(self.get().await?)
        } else {
            None
        };
        let env = &self.staging.context.env;
        // The memory limit of the run in bytes, which is twice the limit of the pool for windows.
        let limit = match env.memory.memory_limit() {
            MemoryLimit::Finite(bytes) => (bytes as u64).saturating_mul(2),
            _ => u64::MAX,
        };
        let keys = MemoryConsumer::new("order of a window").register(&env.memory);
        let staging = Arc::clone(&self.staging);
        // The rows are sorted on the compute pool, because sorting millions of keys would block a
        // thread that serves I/O.
        let ordered = env.pool.run(move || {
            let (snapshot, splits) = (&staging.context.data.snapshot, &staging.splits);
            let kept = |split| staged.as_ref()?.kept(snapshot, split);
            // The sort keys cannot be spilled. Their memory is reserved even beyond the pool's
            // limit, which makes staged windows spill.
            let bytes = splits.rows.saturating_mul(ORDER_BYTES).min(limit);
            keys.grow(usize::try_from(bytes).unwrap_or(usize::MAX));
            order::order(snapshot, splits, shuffle, key, limit, kept)
        });
        ordered.await
    }
}

/// Cache of the staged windows of a job, which the job's runs share.
///
/// A window stays in the cache while a run uses the window. Of the unused windows that hold staged
/// rows, the most recently used ones stay, up to `limit` bytes in total. A window that contains all
/// rows of an input always stays, because every pass over the input reads it.
#[derive(Debug)]
pub(crate) struct WindowCache {
    limit: u64,
    state: Mutex<WindowCacheState>,
}

#[derive(Debug, Default)]
struct WindowCacheState {
    known: HashMap<WindowName, Weak<LazyWindow>>,
    /// Windows that the cache holds even when unused, least recently used first.
    recent: Vec<(WindowName, Arc<LazyWindow>)>,
}

impl WindowCache {
    /// Creates a cache that keeps at most `limit` bytes of unused windows.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// Returns the cached window with name `name`, or creates it from `splits`.
    pub(crate) fn get(
        &self,
        context: &SegmentContext,
        name: WindowName,
        splits: &WindowSplits,
    ) -> Arc<LazyWindow> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.known.get(&name).and_then(Weak::upgrade);
        let window = known.unwrap_or_else(|| Arc::new(LazyWindow::new(context, splits.clone())));
        state.known.retain(|_, window| window.strong_count() > 0);
        state.known.insert(name, Arc::downgrade(&window));
        state.recent.retain(|(of, _)| *of != name);
        state.recent.push((name, Arc::clone(&window)));
        state.evict(self.limit);
        window
    }
}

#[cfg(test)]
impl WindowCache {
    /// Returns the number of windows that the cache holds.
    pub(crate) fn held(&self) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.recent.len()
    }
}

impl WindowCacheState {
    /// Drops the unused windows without rows, of which a client that computes nothing makes very
    /// many. Then drops the least recently used windows until the remaining ones take at most
    /// `limit` bytes.
    fn evict(&mut self, limit: u64) {
        let mut bytes = 0_u64;
        let mut kept: Vec<_> = { self.recent.drain(..).rev() }
            .enumerate()
            .filter(|(nth, (name, window))| {
                if matches!(name, WindowName::Whole { .. }) {
                    return true;
                }
                let of_window = window.reserved_bytes();
                bytes = bytes.saturating_add(of_window);
                let is_worth = of_window > 0 || Arc::strong_count(window) > 1;
                *nth == 0 || is_worth && bytes <= limit
            })
            .map(|(_, entry)| entry)
            .collect();
        kept.reverse();
        self.recent = kept;
    }
}
