//! Status of a window.

use crate::engine::WorkerId;

/// Numbers of events of a run so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Attempts that were submitted.
    pub submitted: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Second attempts of late leases.
    pub hedges: u64,
    /// Leases that were split because workers ended under them.
    pub splits: u64,
    /// Results that were dropped because an earlier attempt returned them.
    pub duplicates: u64,
}

/// Status of a window.
#[derive(Debug, Clone)]
pub struct WindowStatus {
    /// Leases without results.
    pub leases: usize,
    /// Attempts that run.
    pub attempts: usize,
    /// Number of segments that were delivered.
    pub delivered: u64,
    /// Number of segments that were consumed.
    pub consumed: u64,
    /// Bytes that are reserved for leases or held in results.
    pub used_bytes: u64,
    /// Bound of `used_bytes` at this moment.
    pub bound_bytes: u64,
    /// Numbers of events so far.
    pub counts: WindowCounts,
    /// Workers to which no leases go, because they could not compute a lease that another worker
    /// computed; each with its reason.
    pub set_aside: Vec<(WorkerId, String)>,
}
