//! Jobs: pipelines opened over their data, with the resources to compute them.

mod caching;
mod config;
mod last_steps;
mod lookups;
mod named;
mod open;
mod open_job;
mod open_plan;
mod received;
mod resources;
pub(crate) mod row_counts;
mod sample;
mod staged_data;
mod work;

pub use caching::{CacheFacts, machine, planned_cache, used_cache};
pub use config::{JobCache, JobConfig, SharedCache};
pub use last_steps::LastSteps;
pub use named::ComputedSegment;
pub use open_job::OpenJob;
pub(crate) use open_plan::OpenPlan;
pub use row_counts::{CountShare, ShareName};
pub use sample::{Prepared, Sample, prepare};
pub use staged_data::StagedSegment;
pub use work::JobWork;
