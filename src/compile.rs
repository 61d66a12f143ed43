//! Compiles a pipeline to the plan that a run executes.

use std::num::NonZeroU64;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use forebay_planner::clauses::{Clauses, Optimize};
use forebay_planner::compile::{Compiled, needed};
use forebay_planner::optimizer::coefficients::Coefficients;
use forebay_planner::optimizer::profile::is_guessed;
use forebay_planner::pipeline::Pipeline;
use forebay_runtime::pool::ComputePool;
use forebay_runtime::run::{self as engine, DEFAULT_MEMORY, RunConfig};
use forebay_udfs::decode_scope::DecodeScope;
use forebay_udfs::room::DecodeRoom;

use crate::error::{Result, engine, planning};
use crate::opener::JobOpener;

/// Returns the plan of `pipeline`, extended by the hidden columns that group rows into batches.
pub(crate) fn keyed(pipeline: &Pipeline) -> Result<LogicalPlan> {
    pipeline.keyed().map_err(planning)
}

/// Compiles `plan` as the user wrote it, without rewrites, without reading data and without
/// inspecting the machine.
pub(crate) fn compile(plan: &LogicalPlan, clauses: Clauses) -> Result<Compiled> {
    Compiled::new(plan, clauses).map_err(planning)
}

/// Compiles a pipeline for a run. If `config` has a saved plan, the facts in the saved plan replace
/// the facts about this machine and its data.
pub(crate) async fn compiled(
    pipeline: &Pipeline,
    config: &RunConfig,
    prices: &Arc<Coefficients>,
    opener: &JobOpener,
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
    plan(keyed(pipeline)?, clauses, config, prices, opener).await
}

/// Chooses a plan for this machine. If the column types and operators do not fix the sizes or the
/// number of rows, a few rows are profiled.
async fn plan(
    plan: LogicalPlan,
    clauses: Clauses,
    config: &RunConfig,
    prices: &Arc<Coefficients>,
    opener: &JobOpener,
) -> Result<Compiled> {
    let facts = opener.cache_facts(&clauses).await?;
    let mut machine = engine::machine(&clauses, config.threads, facts);
    machine.prices = Arc::clone(prices);
    if clauses.options.optimize == Optimize::Default {
        let needed = needed(&plan).map_err(planning)?;
        if is_guessed(&needed) {
            machine.probe = Some(Arc::new(engine::Sample::of(&needed).await));
        }
    }
    // Profiling may decode photos, so planning runs in a compute pool. On an async thread, the
    // decoding would block other tasks. Outside a pool, the decoding would also start rayon's
    // global pool, whose threads do not exist in a forked child process.
    let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let decoding = DecodeScope {
        room: Arc::new(DecodeRoom::new(memory, config.memory_limit.is_some())),
        indexes: None,
    };
    let pool = ComputePool::open(config.threads, decoding).map_err(engine)?;
    let planned = pool.run(move || Compiled::on(&machine, &plan, clauses));
    planned.await.map_err(planning)
}
