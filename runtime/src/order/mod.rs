//! The order of an epoch: windows of splits, and the rows within a window.
//!
//! The windows and the order of their rows depend only on the snapshot, the seed and the pass:
//! splits are permuted by a hash, consecutive splits form windows, and the rows of a window are
//! sorted by a hash of their keys. Statistics, filters and thread counts have no influence. The
//! module is pure: it opens no source, starts no task and reads no clock.

mod hash_sort;
mod mixing;
mod passes;
mod permutation;
mod row;
pub(crate) mod row_bitmap;
mod snapshot;
mod windows;

pub(crate) use mixing::input_of_draw;
pub(crate) use passes::{PassName, Passes, WindowName};
pub(crate) use permutation::{ORDER_BYTES, order};
pub(crate) use row::{RowLocation, StoredRow};
pub(crate) use snapshot::{Snapshot, SnapshotScan, SnapshotSplit};
pub(crate) use windows::{WindowSplits, windows};

#[cfg(test)]
pub(crate) mod tests;
