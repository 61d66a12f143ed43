//! From a planned pipeline to the plan that runs.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use forebay_planner::clauses::{Clauses, Optimize};
use forebay_planner::compile::{Compiled, needed};
use forebay_planner::optimizer::coefficients::Coefficients;
use forebay_planner::optimizer::profile::is_guessed;
use forebay_planner::pipeline::Pipeline;
use forebay_runtime::cache::Stores;
use forebay_runtime::engine::{self, DEFAULT_MEMORY, RunConfig};
use forebay_runtime::pool::ComputePool;
use forebay_udfs::room::DecodeRoom;

use crate::error::{Result, engine, planning};

fn available_parallelism() -> std::io::Result<usize> {
    std::thread::available_parallelism().map(NonZeroUsize::get)
}

/// The plan of a pipeline with what decides the groups of its rows.
pub(crate) fn keyed(pipeline: &Pipeline) -> Result<LogicalPlan> {
    pipeline.keyed().map_err(|error| planning(&error))
}

/// Plans without a look at the data or the machine.
pub(crate) fn compile(plan: &LogicalPlan, clauses: Clauses) -> Result<Compiled> {
    Compiled::new(plan, clauses).map_err(|error| planning(&error))
}

/// Plans a pipeline for a run: anew, or as a saved plan says.
pub(crate) async fn compiled(
    pipeline: &Pipeline,
    config: &RunConfig,
    prices: &Arc<Coefficients>,
    stores: &Stores,
) -> Result<Compiled> {
    config.check()?;
    let mut clauses = pipeline.clauses.clone();
    clauses.options.optimize = config.optimize.unwrap_or(clauses.options.optimize);
    let epochs = config.epochs.and_then(NonZeroU64::new);
    clauses.repeat.epochs = epochs.or(clauses.repeat.epochs);
    if let Some(saved) = &config.plan {
        let (compiled, differs) = saved.compile(&keyed(pipeline)?, clauses)?;
        if let Some(difference) = differs {
            log::warn!(
                "the saved plan does not come out again: {difference}; at the tier exact the stream is the \
                 same"
            );
        }
        return Ok(compiled);
    }
    plan(keyed(pipeline)?, clauses, config, prices, stores).await
}

/// Plans for this machine; over a profile of a few rows where types do not tell sizes or numbers.
async fn plan(
    plan: LogicalPlan,
    clauses: Clauses,
    config: &RunConfig,
    prices: &Arc<Coefficients>,
    stores: &Stores,
) -> Result<Compiled> {
    let mut machine = engine::machine(&clauses, config, stores).await?;
    machine.prices = Arc::clone(prices);
    if clauses.options.optimize == Optimize::Default {
        let needed = needed(&plan).map_err(|e| planning(&e))?;
        if is_guessed(&needed) {
            machine.probe = Some(Arc::new(engine::Sample::of(&needed).await));
        }
    }
    // Decoding a few photos is no work for a thread that serves others. And without a pool of its own it
    // would start rayon's global one, which a child of this process would find without threads.
    let threads = config.threads.map_or_else(available_parallelism, Ok);
    let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let room = DecodeRoom::new(memory, config.memory_limit.is_some());
    let pool = ComputePool::new(threads.unwrap_or(1).max(1), Arc::new(room)).map_err(engine)?;
    let planned = pool.run(move || Compiled::on(&machine, &plan, clauses));
    planned.await.map_err(|e| planning(&e))
}
