//! Rows as the snapshot stores them, and as a segment computes them.

/// A stored row of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StoredRow {
    /// Index into the snapshot's splits.
    pub split: u32,
    /// Number of the row in the split, from 0. A LIMIT may leave out the split's first rows; they are
    /// not numbered.
    pub offset: u32,
}

impl StoredRow {
    /// Returns the location of the row at a position of a segment, in the pass with this key.
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
    /// Position of the row among the rows that are computed together; rows are in ascending order
    /// of it.
    pub position: u64,
    /// Key of the pass that the row belongs to.
    pub pass: u64,
    /// The stored row.
    pub row: StoredRow,
}
