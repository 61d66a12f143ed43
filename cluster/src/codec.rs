//! Encodings of leases, which the client and its workers share.

use std::time::Duration;

use bytes::Bytes;

use crate::engine::LeaseOutput;
use crate::error::ClusterError;
use crate::window::{ByteSize, LeaseSegment, PieceId, SegmentPiece};

/// Results of a lease.
#[derive(Debug, Clone)]
pub struct LeaseResults<R> {
    /// The results, one for each segment of the lease, in its order.
    pub segments: Vec<R>,
    /// Time that the worker computed.
    pub took: Duration,
}

/// A piece of a segment that ends the workers that compute it.
#[derive(Debug, Clone)]
pub struct PoisonPiece {
    /// The piece.
    pub piece: PieceId,
    /// Number of its rows.
    pub rows: u64,
    /// Number of workers that ended.
    pub workers: u64,
    /// Description of the last loss.
    pub cause: String,
}

impl PoisonPiece {
    /// Returns the error that ends the run.
    pub fn error(self) -> ClusterError {
        let PieceId { sequence, row } = self.piece;
        let rows = match self.rows {
            1 => format!("row {row} of segment {sequence}"),
            count => format!(
                "rows {row} to {} of segment {sequence}",
                row + count.max(1) - 1
            ),
        };
        ClusterError::Poison {
            rows,
            workers: self.workers,
            cause: self.cause,
        }
    }
}

/// Encoding of leases and their results.
pub trait LeaseCodec: Send + Sync + 'static {
    /// Name of a segment.
    type Segment: Clone + Send + 'static;
    /// Result of a segment.
    type Output: ByteSize + Send + 'static;

    /// Encodes a lease.
    fn encode(&self, segments: &[LeaseSegment<Self::Segment>]) -> Bytes;

    /// Decodes the results of a lease. An error means that the worker is unfit for the lease. What
    /// fails in a segment is part of the segment's result instead.
    fn decode(
        &self,
        segments: &[LeaseSegment<Self::Segment>],
        output: LeaseOutput,
    ) -> Result<LeaseResults<Self::Output>, String>;

    /// Splits a segment into pieces of at most `max_rows` rows. Returns nothing if the segment
    /// cannot be split.
    fn split(&self, segment: &Self::Segment, max_rows: u64) -> Vec<SegmentPiece<Self::Segment>> {
        let _ = (segment, max_rows);
        Vec::new()
    }

    /// Returns the result of a piece that ends its workers, or the error that ends the run.
    fn settle_poison(
        &self,
        segment: &Self::Segment,
        poison: PoisonPiece,
    ) -> Result<Self::Output, ClusterError> {
        let _ = segment;
        Err(poison.error())
    }
}
