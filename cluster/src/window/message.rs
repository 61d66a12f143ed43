//! Events that a window receives, and actions that it asks for.

use std::time::Duration;

use super::segment::{LeaseSegment, PieceId, SegmentInfo, SegmentPiece};
use crate::engine::{EngineError, LeaseStaging, WorkerId};
use crate::error::ClusterError;

/// Name of a lease within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub(super) u64);

/// Name of one attempt to compute a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub(super) u64);

/// News for a window.
#[derive(Debug, Clone)]
pub enum WindowEvent<N, R> {
    /// The next segments of the stream.
    SegmentsAdded(Vec<SegmentInfo<N>>),
    /// The segments that the window wants are not known yet.
    SegmentsDelayed,
    /// The stream has no more segments.
    EndOfStream,
    /// An attempt returned its results.
    AttemptDone {
        /// The attempt.
        attempt: AttemptId,
        /// The worker that computed the lease.
        worker: WorkerId,
        /// The results, one for each segment of the lease, in its order.
        results: Vec<R>,
        /// Time that the worker computed.
        took: Duration,
    },
    /// An attempt has no results.
    AttemptFailed {
        /// The attempt.
        attempt: AttemptId,
        /// The reason.
        error: EngineError,
    },
    /// The host passed the first of the delivered segments on, and does not hold its results any
    /// more.
    Consumed,
    /// The workers that run leases now.
    WorkersChanged(Vec<WorkerId>),
    /// Time passed.
    Tick,
    /// The consumer needs no segment from this number on. Segments that were delivered already
    /// are still to be consumed.
    SkipFrom(u64),
    /// Answer to [`WindowAction::SplitSegment`]. Empty if the segment cannot be split.
    SegmentSplit {
        /// The segment, or the piece of one.
        piece: PieceId,
        /// Its pieces, in the order of their rows.
        pieces: Vec<SegmentPiece<N>>,
    },
    /// Answer to [`WindowAction::SettlePoison`].
    PoisonSettled {
        /// The piece.
        piece: PieceId,
        /// The result to deliver for the piece, or the error that ends the run.
        result: Result<R, ClusterError>,
    },
    /// The run ends before its stream.
    Stop,
}

/// A request of a window to its host.
#[derive(Debug, Clone)]
pub enum WindowAction<N, R> {
    /// Add the next segments, until one of the three limits is reached. The host may add fewer.
    WantSegments {
        /// Number of segments.
        segments: usize,
        /// Estimated output of the segments.
        bytes: u64,
        /// Estimated computing time of the segments.
        work: Duration,
    },
    /// Submit an attempt to the engine.
    Submit {
        /// The attempt.
        attempt: AttemptId,
        /// The lease.
        lease: LeaseId,
        /// The segments to compute.
        segments: Vec<LeaseSegment<N>>,
        /// Affinity key.
        affinity: u64,
        /// The data that a worker stages for the lease.
        staging: LeaseStaging,
        /// Position of the lease in the stream.
        order: u64,
        /// Workers that must not run the lease.
        avoid: Vec<WorkerId>,
    },
    /// Cancel an attempt. The window ignores its results from now on.
    Cancel {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Pass the results of the next segment to the consumer.
    Deliver {
        /// Number of the segment.
        sequence: u64,
        /// The result of the segment, or the results of its pieces in the order of their rows.
        results: Vec<R>,
    },
    /// Split a segment, or a piece of one, into pieces of at most `max_rows` rows.
    SplitSegment {
        /// The segment.
        piece: PieceId,
        /// Its name.
        name: N,
        /// Number of its rows.
        rows: u64,
        /// Largest number of rows of a piece.
        max_rows: u64,
    },
    /// Decide what becomes of a piece that ends the workers that compute it.
    SettlePoison {
        /// The piece.
        piece: PieceId,
        /// Its name.
        name: N,
        /// Number of its rows.
        rows: u64,
        /// Number of workers that ended.
        workers: u64,
        /// Description of the last loss.
        cause: String,
    },
    /// Send [`WindowEvent::Tick`] at this time. Replaces earlier requests.
    WakeAt(Duration),
    /// The host consumed all segments. No action follows.
    Finish,
    /// The run ends with an error. No action follows.
    Fail(ClusterError),
}
