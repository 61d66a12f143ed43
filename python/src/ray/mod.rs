//! Leases on a Ray cluster.

pub(crate) mod engine;
pub(crate) mod queue;
pub(crate) mod worker;

mod rows;
