//! Segments of a stream, as a window sees them.

use std::fmt;
use std::time::Duration;

/// A result that occupies memory of the client.
pub trait ByteSize {
    /// Returns the size of the result in memory.
    fn bytes(&self) -> u64;
}

/// Data that a worker stages before it computes a segment. Segments that follow each other and need
/// the same data stage it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StagedData {
    /// Key of the data.
    pub key: u64,
    /// Time that staging takes; zero if the worker reads rows by reference.
    pub time: Duration,
    /// Time that staging all data of the segment's affinity key takes.
    pub time_of_key: Duration,
}

/// A segment to compute. Segments are numbered from 0 in the order in which the host adds them.
#[derive(Debug, Clone)]
pub struct SegmentInfo<N> {
    /// Name of the segment, which the window does not read.
    pub name: N,
    /// Estimated size of the result; 0 if unknown.
    pub bytes: u64,
    /// Estimated computing time; zero if unknown.
    pub work: Duration,
    /// Segments with the same affinity key share staged data.
    pub affinity: u64,
    /// The data that a worker stages for the segment.
    pub staged: StagedData,
    /// Number of rows.
    pub rows: u64,
    /// True if the host can split the segment into ranges of rows.
    pub is_divisible: bool,
}

/// Place of a segment, or of a piece of a segment, in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceId {
    /// Number of the segment.
    pub sequence: u64,
    /// First row of the piece, counted from the start of the segment.
    pub row: u64,
}

impl fmt::Display for PieceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} of segment {}", self.row, self.sequence)
    }
}

/// A piece of a segment that the host split.
#[derive(Debug, Clone)]
pub struct SegmentPiece<N> {
    /// Name of the piece, which the window does not read.
    pub name: N,
    /// Number of rows.
    pub rows: u64,
}

/// A segment, or a piece of a segment, as part of a lease.
#[derive(Debug, Clone)]
pub struct LeaseSegment<N> {
    /// Place of the segment in the stream.
    pub id: PieceId,
    /// Name of the segment.
    pub name: N,
    /// Bytes that the window reserved for the result.
    pub bytes: u64,
    /// Number of rows.
    pub rows: u64,
    /// True if the host can split the segment into ranges of rows.
    pub is_divisible: bool,
}

impl<N> LeaseSegment<N> {
    /// Returns `true` if the segment can become several pieces.
    pub(super) fn can_split(&self) -> bool {
        self.is_divisible && self.rows > 1
    }
}
