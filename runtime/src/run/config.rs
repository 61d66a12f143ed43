//! Settings of a run.

use std::sync::Arc;

use forebay_planner::clauses::Optimize;
use forebay_planner::limits::{MAX_EPOCH, MAX_THREADS, MAX_WORLD};
use forebay_planner::saved::SavedPlan;

use super::segment_engine::SegmentEngine;
use crate::dead_letters::DeadLetter;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::memory::DEFAULT_MEMORY;
use crate::stream::assignment::{Uneven, WorkerStride};
use crate::stream::token::Token;

/// Settings of a run. The stream depends on epochs, seed, rank, world and `uneven`, and on the plan
/// if rewrites above the exact tier are allowed. `resume`, `limit_batches` and `internals` select a
/// part of the stream. The other settings affect only speed and memory.
#[derive(Debug, Clone, Default)]
pub struct RunConfig {
    /// First epoch, from 0.
    pub first_epoch: u64,
    /// Number of epochs; `None` to use the number in the pipeline.
    pub epochs: Option<u64>,
    /// Seed; `None` to use the pipeline's seed or, if the pipeline has none, the seed in `resume`.
    /// Without any of these, the seed is 0.
    pub seed: Option<u64>,
    /// Number of this rank, from 0.
    pub rank: u64,
    /// Number of ranks; 0 means 1.
    pub world: u64,
    /// Number of compute threads; `None` for all cores.
    pub threads: Option<usize>,
    /// Memory limit in bytes; `None` for [`DEFAULT_MEMORY`].
    pub memory_limit: Option<u64>,
    /// Number of this rank's batches after which the run ends; `None` for no limit.
    pub limit_batches: Option<u64>,
    /// Optimisation setting of the planner; `None` to use the setting in the pipeline.
    pub optimize: Option<Optimize>,
    /// Saved plan to run. The pipeline is planned with the statistics that the saved plan records.
    pub plan: Option<Arc<SavedPlan>>,
    /// Token to resume from; `None` to begin with the first epoch.
    pub resume: Option<Arc<Token>>,
    /// Treatment of steps in which ranks would have different numbers of rows.
    pub uneven: Uneven,
    /// Settings for programs that embed the engine.
    pub internals: RunInternals,
}

/// Settings that are not exposed to users: those of data loaders, of tools that inspect a stream, and of tests.
#[derive(Debug, Clone, Default)]
pub struct RunInternals {
    /// The share of the rank's batches that the run yields, if the workers of a data loader take
    /// turns. Step numbers and tokens are the same as in a run that yields all batches of the rank.
    pub stride: WorkerStride,
    /// The part of the stream to run.
    pub scope: RunScope,
    /// Number of rows in a segment; `None` to derive it from cost and size.
    pub segment_rows: Option<u64>,
    /// The engine that computes the run's segments; `None` to compute them in this process.
    pub engine: Option<Arc<dyn SegmentEngine>>,
    /// True to read the sources in each epoch, so that reading can be measured.
    pub is_reread: bool,
    /// True to run segments one by one, so that the CPU time of each operator can be measured.
    pub analyze: bool,
}

impl RunConfig {
    /// Checks the settings against each other and against their limits.
    ///
    /// # Errors
    /// Fails if `rank` is not below `world`, or a setting exceeds its limit.
    pub fn check(&self) -> Result<()> {
        let world = self.world.max(1);
        if self.rank >= world {
            return Err(Error::Config(format!(
                "rank {} does not exist in a world of {world}; ranks count from 0",
                self.rank
            )));
        }
        for (what, found, most) in [
            (
                "threads",
                self.threads.unwrap_or(1) as u64,
                MAX_THREADS as u64,
            ),
            ("world", world, MAX_WORLD),
            ("turns", self.internals.stride.of, MAX_WORLD),
            ("first_epoch", self.first_epoch, MAX_EPOCH),
        ] {
            if found > most {
                return Err(Error::Config(format!(
                    "{what}: {found} is above the limit of {most}"
                )));
            }
        }
        Ok(())
    }
}

/// The part of a stream to run.
#[derive(Debug, Clone, Default)]
pub enum RunScope {
    /// The whole stream.
    #[default]
    All,
    /// The rows of these dead letters. Each row is computed again as in the pass in which the row
    /// failed. The batches have the pipeline's batch size, and no packs.
    DeadLetters(Arc<Vec<DeadLetter>>),
    /// This rank's batch in a single step.
    Step {
        /// The epoch of the step.
        epoch: u64,
        /// Number of the step in the epoch (in the whole run under `CONTINUOUS`), from 0.
        step: u64,
    },
}
