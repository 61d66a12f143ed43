//! The passes of a pipeline over its inputs, and the windows of each pass. A pass is one traversal
//! of an input in one epoch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_planner::clauses::ShuffleWindow as Shuffle;
use forebay_udfs::draw::pass_key;

use super::row::StoredRow;
use super::snapshot::Snapshot;
use super::windows::{WindowSplits, windows};

/// Maximum number of passes per input whose windows are kept: those of the current epoch and the
/// next, and those of rows that a cursor carries. Beyond it, the windows computed first are dropped
/// and computed again if needed.
const KEPT: usize = 4;

/// Identifies a pass over an input: the epoch, and the number of passes over the input that the
/// epoch completed before it.
pub(crate) type PassName = (u64, u32);

/// Identifies a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WindowName {
    /// The window at `index` of a pass over an input.
    OfPass {
        input: usize,
        pass: PassName,
        index: u32,
    },
    /// The only window of an input that is shuffled as a whole, the same in every pass.
    Whole { input: usize },
    /// The rows of one split, outside of any pass.
    Split(u32),
}

/// The windows of a pass over an input, in the order of the pass, with the input and the pass.
type NamedWindows = ((usize, PassName), Arc<[WindowSplits]>);

/// The passes of a pipeline, which define the order in which each epoch reads its inputs.
#[derive(Debug)]
pub(crate) struct Passes {
    snapshot: Arc<Snapshot>,
    shuffle: Option<Shuffle>,
    seed: u64,
    /// Splits of each input, in stored order.
    splits: Vec<Vec<u32>>,
    /// Index of the input that each scan of the snapshot belongs to.
    input_of_scan: Arc<[usize]>,
    /// Recently computed windows, the latest first.
    recent: Mutex<VecDeque<NamedWindows>>,
}

impl Passes {
    /// Creates the passes over the inputs of a snapshot. `input_of_scan` holds the input of each
    /// scan, as an index below `inputs`.
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

    /// Returns the number of inputs: that of MIX's inputs, or 1.
    pub(crate) const fn inputs(&self) -> usize {
        self.splits.len()
    }

    /// Returns the index of the input that each scan of the snapshot belongs to.
    pub(crate) const fn input_of_scan(&self) -> &Arc<[usize]> {
        &self.input_of_scan
    }

    /// Returns the key of a pass, which determines its order and draws.
    pub(crate) fn key(&self, (epoch, pass): PassName) -> u64 {
        // The number of the first pass of an epoch is the epoch.
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
            // A single window holds every split, so its rows are staged once for all epochs.
            Some(Shuffle::Global) => WindowName::Whole { input },
            _ => WindowName::OfPass { input, pass, index },
        }
    }

    /// Returns the window of a pass that holds a row: its input, index and splits.
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
