//! The passes of a pipeline over its inputs, and the windows of each pass. A pass is one traversal
//! of an input in one epoch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_planner::clauses::ShuffleWindow as Shuffle;
use forebay_udfs::draw::pass_key;

use super::row::StoredRow;
use super::snapshot::Snapshot;
use super::windows::{WindowSplits, windows};

/// Maximum number of passes, per input, whose windows are cached: enough for the passes of the
/// current epoch and of the next epoch, and for those of rows that a cursor carries. When the cache
/// is full, the windows computed first are dropped, and computed again if needed.
const KEPT: usize = 4;

/// Name of a pass over an input: (epoch, number of earlier passes over the same input in that
/// epoch).
pub(crate) type PassName = (u64, u32);

/// Name of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WindowName {
    /// The window at `index` in the order of a pass over an input.
    OfPass {
        input: usize,
        pass: PassName,
        index: u32,
    },
    /// The window that holds all rows of an input under `SHUFFLE GLOBALLY`. All passes over the
    /// input share this window.
    Whole { input: usize },
    /// The rows of the split at this index of the snapshot, outside of any pass.
    Split(u32),
}

/// A pass, as (index of its input, name of the pass), and its windows in the order of the pass.
type NamedWindows = ((usize, PassName), Arc<[WindowSplits]>);

/// The passes of a pipeline over its inputs. The passes define the order in which each epoch reads
/// the rows of an input.
#[derive(Debug)]
pub(crate) struct Passes {
    snapshot: Arc<Snapshot>,
    shuffle: Option<Shuffle>,
    seed: u64,
    /// For each input, the indices of its splits in the snapshot, in stored order.
    splits: Vec<Vec<u32>>,
    /// For each scan of the snapshot, the index of the input that the scan belongs to.
    input_of_scan: Arc<[usize]>,
    /// Cache of computed windows, the most recently computed first.
    recent: Mutex<VecDeque<NamedWindows>>,
}

impl Passes {
    /// Creates the passes over the inputs of a snapshot. `inputs` is the number of inputs. For each
    /// scan of the snapshot, `input_of_scan` holds the index of the scan's input.
    pub(crate) fn new(
        snapshot: &Arc<Snapshot>,
        (inputs, input_of_scan): (usize, Arc<[usize]>),
        shuffle: Option<Shuffle>,
        seed: u64,
    ) -> Self {
        let mut splits = vec![Vec::new(); inputs];
        for (index, split) in (0..).zip(&snapshot.splits) {
            splits[input_of_scan[split.scan as usize]].push(index);
        }
        Self {
            snapshot: Arc::clone(snapshot),
            shuffle,
            seed,
            splits,
            input_of_scan,
            recent: Mutex::default(),
        }
    }

    /// Returns the number of inputs, which is 1 without MIX.
    pub(crate) const fn inputs(&self) -> usize {
        self.splits.len()
    }

    /// Returns, for each scan of the snapshot, the index of the input that the scan belongs to.
    pub(crate) const fn input_of_scan(&self) -> &Arc<[usize]> {
        &self.input_of_scan
    }

    /// Returns the hash key of a pass, which determines the order of the pass's rows and their
    /// random draws.
    pub(crate) fn key(&self, (epoch, pass): PassName) -> u64 {
        // Passes are numbered so that the number of an epoch's first pass is the epoch itself.
        pass_key(self.seed, epoch.wrapping_add(u64::from(pass) << 40))
    }

    /// Returns the windows of a pass over an input, in the order of the pass.
    pub(crate) fn windows(&self, input: usize, pass: PassName) -> Arc<[WindowSplits]> {
        let name = (input, pass);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, windows)) = recent.iter().find(|(of, _)| *of == name) {
            return Arc::clone(windows);
        }
        let splits = self.splits[input].iter().copied();
        let windows = windows(&self.snapshot, splits, self.shuffle, self.key(pass));
        let windows: Arc<[WindowSplits]> = windows.into();
        recent.truncate((KEPT * self.splits.len()).saturating_sub(1));
        recent.push_front((name, Arc::clone(&windows)));
        windows
    }

    /// Returns the name of a window of a pass over an input.
    pub(crate) const fn name(&self, input: usize, pass: PassName, index: u32) -> WindowName {
        match self.shuffle {
            // One window holds every split of the input. All passes share this window, so its rows
            // are staged only once.
            Some(Shuffle::Global) => WindowName::Whole { input },
            _ => WindowName::OfPass { input, pass, index },
        }
    }

    /// Returns the window of `pass` that holds `row`, as (index of the input, index of the window
    /// in the pass, splits of the window); `None` if no window holds the row.
    pub(crate) fn window_of(
        &self,
        row: StoredRow,
        pass: PassName,
    ) -> Option<(usize, u32, WindowSplits)> {
        let input = self.input_of_scan[self.snapshot.scan_of(row)];
        let windows = self.windows(input, pass);
        let mut found = (0..).zip(&*windows);
        let (index, window) = found.find(|(_, window)| window.splits.contains(&row.split))?;
        Some((input, index, window.clone()))
    }
}
