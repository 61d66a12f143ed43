//! Stored rows, and the locations of the rows that a segment computes.

/// A stored row of a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct StoredRow {
    /// Index into the snapshot's splits.
    pub split: u32,
    /// Index of the row among the split's rows, from 0. Rows at the split's beginning that a LIMIT
    /// leaves out are not counted.
    pub offset: u32,
}

impl StoredRow {
    /// Returns the location of this row: its `position` in a segment, and `pass`, the hash key of
    /// its pass.
    pub(crate) const fn at(self, position: u64, pass: u64) -> RowLocation {
        RowLocation {
            position,
            pass,
            row: self,
        }
    }
}

/// A stored row that a segment computes, with its position in the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowLocation {
    /// Position of the row in its segment. Each row has a larger position than the row before.
    pub position: u64,
    /// Hash key of the pass that the row belongs to.
    pub pass: u64,
    /// The stored row.
    pub row: StoredRow,
}
