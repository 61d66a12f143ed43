//! The local engine: runs an opened job in this process.
//!
//! A [`JobRun`] is a job with a rank, epochs and a first position. Once started, the run plans
//! segments in stream order, has the job read and compute the segments concurrently, and makes
//! batches of the computed rows in order. A bounded channel holds the batches that the consumer has
//! not received yet; the run pauses while the channel is full. The batches do not depend on the
//! number of threads or on the memory limit.

mod computed;
mod config;
mod counted;
mod driver;
mod epoch_gate;
mod epochs;
mod input;
mod inputs;
mod job_run;
mod open;
mod output;
mod replay;
mod resumed;
mod segment_builder;
mod segment_engine;
mod sequencer;
mod sizing;
mod span;
mod steps;
#[cfg(test)]
mod tests;
mod work;

pub use config::{RunConfig, RunInternals, RunScope};
pub use driver::BatchStream;
pub use job_run::JobRun;
pub use segment_engine::{ByName, SegmentEngine};

pub use crate::job::{
    CacheFacts, ComputedSegment, CountShare, JobCache, JobConfig, JobWork, LastSteps, OpenJob,
    Prepared, Sample, ShareName, SharedCache, StagedSegment, machine, planned_cache, prepare,
    used_cache,
};
pub use crate::memory::DEFAULT_MEMORY;
pub use crate::segment::{CacheUse, SegmentName, SegmentWindow, SourceNames, cached_location};
pub use crate::stream::assignment::{Uneven, WorkerStride};
