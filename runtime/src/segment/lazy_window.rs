//! Lazily staged windows, and the cache through which runs share them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::common::Result;

use super::context::SegmentContext;
use super::staging::stage;
use super::window::Window;
use crate::order::{WindowName, WindowSplits};
use crate::prefetch::Lazy;

/// A window that is staged when its rows are first needed, or ahead of time.
#[derive(Debug)]
pub(crate) struct LazyWindow {
    splits: WindowSplits,
    window: Lazy<Window>,
}

impl LazyWindow {
    fn new(context: &SegmentContext, splits: WindowSplits) -> Self {
        let (context, of) = (context.clone(), splits.clone());
        let make = move || {
            let (context, splits) = (context.clone(), of.clone());
            async move { stage(&context, &splits).await }
        };
        let window = Lazy::new(make);
        Self { splits, window }
    }

    /// Returns the window, staging it if necessary.
    pub(crate) async fn get(&self) -> Result<Arc<Window>> {
        self.window.get().await
    }

    /// Starts staging the window in the background. An error is reported by [`get`](Self::get).
    pub(crate) fn begin(&self) {
        self.window.begin();
    }

    /// Returns true if a split belongs to the window.
    pub(crate) fn has(&self, split: u32) -> bool {
        self.splits.splits.contains(&split)
    }

    /// Returns the memory that the staged rows take, in bytes; 0 before they are staged.
    fn reserved_bytes(&self) -> u64 {
        let window = self.window.made();
        window.map_or(0, |window| window.reserved_bytes())
    }
}

/// The staged windows of a job, which its runs share.
///
/// A window stays while it is in use. Of the unused windows, the most recently used ones stay, up
/// to `limit` bytes together. A window of all rows, which every pass over an input reads, always
/// stays.
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

    fn state(&self) -> MutexGuard<'_, WindowCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the window with this name, which consists of these splits.
    pub(crate) fn get(
        &self,
        context: &SegmentContext,
        name: WindowName,
        splits: &WindowSplits,
    ) -> Arc<LazyWindow> {
        let mut state = self.state();
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

impl WindowCacheState {
    /// Drops the least recently used windows until the others take at most `limit` bytes.
    fn evict(&mut self, limit: u64) {
        let mut bytes = 0_u64;
        let mut kept: Vec<_> = { self.recent.drain(..).rev() }
            .enumerate()
            .filter(|(nth, (name, window))| {
                if matches!(name, WindowName::Whole { .. }) {
                    return true;
                }
                bytes = bytes.saturating_add(window.reserved_bytes());
                *nth == 0 || bytes <= limit
            })
            .map(|(_, entry)| entry)
            .collect();
        kept.reverse();
        self.recent = kept;
    }
}
