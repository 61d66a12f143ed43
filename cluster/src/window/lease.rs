//! Leases of a window.

use std::time::Duration;

use super::message::AttemptId;
use super::mortality::LeaseLosses;
use super::queue::LeaseCut;
use super::segment::{LeaseSegment, PieceId};
use super::settings::WindowSettings;
use crate::engine::{LeaseStaging, WorkerId};

/// Degree of suspicion that the rows of a lease end the workers that compute them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspicion {
    None,
    /// The lease is a part of one that was lost several times.
    Ranges,
    /// The lease is a single row, or cannot be split.
    Single,
}

/// An attempt to compute a lease, which an engine carries.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningAttempt {
    pub(super) id: AttemptId,
    /// Time of submission.
    pub(super) since: Duration,
}

/// A lease that has no result yet.
#[derive(Debug)]
pub(super) struct OpenLease<N> {
    pub(super) segments: Vec<LeaseSegment<N>>,
    pub(super) affinity: u64,
    pub(super) staging: LeaseStaging,
    /// Reserved bytes: those of all segments.
    pub(super) bytes: u64,
    pub(super) estimated_bytes: u64,
    pub(super) estimated_work: Duration,
    /// Size in relation to a full lease.
    pub(super) weight: f64,
    /// At most two. The lease waits if there is none.
    pub(super) attempts: Vec<RunningAttempt>,
    /// Number of second attempts so far.
    pub(super) hedges: u32,
    /// Number of failures after which the lease was to be issued again.
    pub(super) failures: u32,
    /// Workers that cannot compute the lease, with the reasons.
    pub(super) unfit: Vec<(WorkerId, String)>,
    /// Time of the first entry of `unfit`.
    pub(super) unfit_since: Option<Duration>,
    /// Time at which the run ends if all workers are unfit for the lease.
    pub(super) stranded_until: Option<Duration>,
    /// Time until which the lease waits for a verdict.
    pub(super) judged_until: Option<Duration>,
    pub(super) losses: LeaseLosses,
    /// Time of the last loss, and `true` if its worker is known.
    pub(super) last_loss: Option<(Duration, bool)>,
    pub(super) suspicion: Suspicion,
}

impl<N> OpenLease<N> {
    /// Returns the lease of newly cut segments.
    pub(super) fn new(cut: LeaseCut<N>, settings: &WindowSettings) -> Self {
        Self {
            weight: cut.weight(settings),
            affinity: cut.affinity,
            staging: cut.staging(),
            bytes: cut.bytes,
            estimated_bytes: cut.estimated_bytes,
            estimated_work: cut.estimated_work,
            segments: cut.segments,
            attempts: Vec::new(),
            hedges: 0,
            failures: 0,
            unfit: Vec::new(),
            unfit_since: None,
            stranded_until: None,
            judged_until: None,
            last_loss: None,
            losses: LeaseLosses::default(),
            suspicion: Suspicion::None,
        }
    }

    /// Returns the place of the lease in the stream.
    pub(super) fn place(&self) -> PieceId {
        self.segments.first().map_or(
            PieceId {
                sequence: 0,
                row: 0,
            },
            |segment| segment.id,
        )
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspicion > Suspicion::None
    }

    /// Returns `true` if the lease can become several leases.
    pub(super) fn can_split(&self) -> bool {
        self.segments.len() > 1 || self.segments.iter().any(LeaseSegment::can_split)
    }

    /// Returns the lease of some of its segments.
    pub(super) fn part(&self, segments: Vec<LeaseSegment<N>>, suspicion: Suspicion) -> Self {
        Self {
            affinity: self.affinity,
            staging: self.staging,
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            segments,
            estimated_bytes: 0,
            estimated_work: Duration::ZERO,
            weight: self.weight,
            attempts: Vec::new(),
            hedges: 0,
            failures: 0,
            unfit: self.unfit.clone(),
            unfit_since: self.unfit_since,
            stranded_until: None,
            judged_until: None,
            last_loss: None,
            losses: self.losses.of_part(),
            suspicion,
        }
    }
}
