//! Compiles a pipeline to the plan that a run executes.

use std::num::NonZeroU64;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use forebay_planner::clauses::{Clauses, Optimize};
use forebay_planner::compile::{Compiled, needed};
use forebay_planner::optimizer::coefficients::Coefficients;
use forebay_planner::optimizer::profile::is_guessed;
use forebay_planner::pipeline::Pipeline;
use forebay_runtime::cache::Stores;
use forebay_runtime::pool::ComputePool;
use forebay_runtime::run::{self as engine, DEFAULT_MEMORY, RunConfig};
use forebay_udfs::room::DecodeRoom;

use crate::error::{Result, engine, planning};

/// Returns the plan of a pipeline, with the hidden columns by which rows are grouped into batches.
pub(crate) fn keyed(pipeline: &Pipeline) -> Result<LogicalPlan> {
    pipeline.keyed().map_err(planning)
}

/// Compiles a plan as written, without reading data or inspecting the machine.
pub(crate) fn compile(plan: &LogicalPlan, clauses: Clauses) -> Result<Compiled> {
    Compiled::new(plan, clauses).map_err(planning)
}

/// Compiles a pipeline for a run. If the configuration has a saved plan, its facts are used.
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
                "planning here gives another plan than the saved one: {difference}; with relax = 'none' the stream is the \
                 same"
            );
        }
        return Ok(compiled);
    }
    plan(keyed(pipeline)?, clauses, config, prices, stores).await
}

/// Chooses a plan for this machine. If the types leave sizes or counts unknown, a few rows are
/// profiled.
async fn plan(
    plan: LogicalPlan,
    clauses: Clauses,
    config: &RunConfig,
    prices: &Arc<Coefficients>,
    stores: &Stores,
) -> Result<Compiled> {
    let mut machine = engine::machine(&clauses, config.threads, stores).await?;
    machine.prices = Arc::clone(prices);
    if clauses.options.optimize == Optimize::Default {
        let needed = needed(&plan).map_err(planning)?;
        if is_guessed(&needed) {
            machine.probe = Some(Arc::new(engine::Sample::of(&needed).await));
        }
    }
    // Decoding photos would block an async thread, which serves other tasks. Outside a pool, it
    // would also start rayon's global pool, whose threads do not exist in a forked child process.
    let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let room = DecodeRoom::new(memory, config.memory_limit.is_some());
    let pool = ComputePool::open(config.threads, Arc::new(room)).map_err(engine)?;
    let planned = pool.run(move || Compiled::on(&machine, &plan, clauses));
    planned.await.map_err(planning)
}
