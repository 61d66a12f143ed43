//! Settings of jobs.

use serde::{Deserialize, Serialize};

use crate::memory::DEFAULT_MEMORY;
use crate::segment::SourceNames;

/// Settings of a job, shared by all of its runs.
#[derive(Debug, Clone, Default)]
pub struct JobConfig {
    /// Seed that determines the order of rows and all random draws.
    pub seed: u64,
    /// Expected number of epochs in which each row is read; `None` if unlimited.
    pub epochs: Option<u64>,
    /// True if other epochs read the rows of a run, too. Then the job records the seek indexes of its JPEG
    /// files.
    pub is_repeated: bool,
    /// True to read the sources in each epoch, and keep no rows of theirs for later ones.
    pub is_reread: bool,
    /// Number of compute threads for this job alone; `None` to use the threads of the process.
    pub threads: Option<usize>,
    /// Memory limit of this job in bytes; `None` to share the default limit with the other jobs of
    /// the process.
    pub memory_limit: Option<u64>,
    /// The store of the job's cache.
    pub cache: JobCache,
    /// True to compute segments one by one, so that the CPU time of each operator can be measured.
    pub analyze: bool,
    /// True on a worker of a cluster whose client computes the [last steps](super::LastSteps) of the plan.
    pub is_cut: bool,
}

impl JobConfig {
    /// Returns the memory limit of the job in bytes, or the default limit if the job has none.
    pub(super) fn memory(&self) -> u64 {
        self.memory_limit.unwrap_or(DEFAULT_MEMORY)
    }
}

/// The store of a job's cache, and the process that reads and writes it.
#[derive(Debug, Clone, Default)]
pub enum JobCache {
    /// The pipeline's `cache_dir` on this machine. One process at a time writes an entry.
    #[default]
    Own,
    /// A store that several processes fill, each with the rows that it computes.
    Shared(SharedCache),
    /// Other processes compute the rows, and read and write the store. This process does not open
    /// it.
    Elsewhere,
}

/// A store that several processes share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedCache {
    /// Location of the store: a directory, or a URL.
    pub dir: String,
    /// The [mark](crate::cache::CacheStore::mark) of the store. A store at `dir` that has another one is not
    /// shared.
    pub mark: String,
    /// Locations by which cached rows of sources are known, by the locations that are read, if both
    /// differ.
    pub names: SourceNames,
}
