//! Jobs: pipelines opened over their data, with the resources to compute them.

mod caching;
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
mod work;

pub use caching::machine;
pub use last_steps::LastSteps;
pub use open_job::OpenJob;
pub(crate) use open_plan::OpenPlan;
pub use row_counts::{CountShare, ShareName};
pub use sample::{Prepared, Sample, prepare};
pub use work::JobWork;

use crate::memory::DEFAULT_MEMORY;

/// Settings of a job, shared by all of its runs.
#[derive(Debug, Clone, Default)]
pub struct JobConfig {
    /// Seed that determines the order of rows and all random draws.
    pub seed: u64,
    /// Expected number of epochs in which each cached row is read; `None` if unlimited.
    pub epochs: Option<u64>,
    /// Number of compute threads for this job alone; `None` to use the threads of the process.
    pub threads: Option<usize>,
    /// Memory limit of this job in bytes; `None` to share the default limit with the other jobs of
    /// the process.
    pub memory_limit: Option<u64>,
    /// True to compute segments one by one, so that the CPU time of each operator can be measured.
    pub analyze: bool,
    /// True on a worker of a cluster whose client computes the [last steps](LastSteps) of the plan.
    pub is_cut: bool,
}

impl JobConfig {
    /// Returns the memory limit of the job in bytes, or the default limit if the job has none.
    fn memory(&self) -> u64 {
        self.memory_limit.unwrap_or(DEFAULT_MEMORY)
    }
}
