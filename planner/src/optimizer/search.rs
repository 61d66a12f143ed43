//! The search for the cheapest plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, plan_err};

use super::always_rules::always_rules;
use super::arena::Arena;
use super::cache::{self, CacheCosts};
use super::choose;
use super::config::Config;
use super::facts::kept_part;
use super::graph::{self, Knowledge, seed_egraph};
use super::initial_order::{self, effects, initial_order};
use super::lang::Term;
use super::lower::{self, Lowered};
use super::price::price;
use super::profile::Profile;
use super::raise;
use super::report::Report;
use super::rules::is_disabled;
use super::saturate::saturate;
use super::statistics::{RowStats, SourceStats, Statistics};
use super::tree::OperatorTree;
use super::wide;
use crate::clauses::Clauses;
use crate::rows::finalize::FILTER_INTO_SCAN;
use crate::rows::{RowOp, RowPlan};

/// The result of a search, with the e-graph and the plans from which EXPLAIN builds its output.
pub(super) struct Searched {
    pub(super) graph: graph::PlanGraph,
    /// The plan from which the search started.
    pub(super) start: Term,
    /// The plan `start` as a tree.
    pub(super) normal: OperatorTree,
    /// The plan `normal` with its operators in a good order, from which the search also started.
    pub(super) sorted: OperatorTree,
    pub(super) chosen: OperatorTree,
    pub(super) report: Report,
}

/// Searches for the cheapest plan that is equivalent to the plan `lowered`. An error says why the
/// search found no reliable result.
pub(super) fn search(arena: Arena, lowered: &Lowered, config: &Config) -> Result<Searched, String> {
    search_with(arena, Profile::default(), lowered, config)
}

/// Like [`search`], but estimates sizes from `profile`, unless `config` has statistics or a probe
/// for a profile.
pub(super) fn search_with(
    mut arena: Arena,
    mut profile: Profile,
    lowered: &Lowered,
    config: &Config,
) -> Result<Searched, String> {
    let operators = wide::operators(&lowered.tree);
    if operators > wide::MAX_OPERATORS {
        return Err(format!(
            "the plan has {operators} operators, but only plans of at most {} are optimised",
            wide::MAX_OPERATORS
        ));
    }
    let rules = config.rules();
    let mut report = Report {
        epochs: config.cache.epochs,
        ..Report::default()
    };
    let tree = always_rules(&mut arena, &rules, lowered.tree.clone(), &mut report.before);
    let wanted = lowered.wanted();
    report.statistics = Statistics::of(&arena);
    let rows = config
        .statistics
        .as_ref()
        .and_then(|known| known.profile.as_ref());
    let probe = config
        .probe
        .as_ref()
        .filter(|_| config.statistics.is_none());
    if rows.is_some() || probe.is_some() {
        let needed = lowered.tree.needed(&mut arena, &wanted);
        let message = |error: DataFusionError| error.strip_backtrace();
        if let Some(rows) = rows {
            profile = rows.profile(&arena, &needed).map_err(message)?;
        }
        if let Some(probe) = probe {
            profile = Profile::of(&arena, &needed, probe.as_ref());
        }
        report.statistics.profile = Some(RowStats::of(&arena, &profile, &needed).map_err(message)?);
    }
    if !is_disabled(&config.disabled, FILTER_INTO_SCAN) {
        arena.filter_scans(|arena, filter| kept_part(arena, &profile, filter));
    }
    let written = lowered.tree.term(&mut arena, &wanted);
    let written = price(&mut arena, &profile, &config.prices, &written)?;
    report.written = written.saturating_mul(config.cache.epochs.into());
    let term = tree.term(&mut arena, &wanted);
    let (mut graph, root) = seed_egraph(arena, profile, &term, config.proofs);
    let known = effects(&graph, &config.prices, &term);
    let sorted = initial_order(&mut graph.analysis.arena, &rules, &known, &tree);
    if sorted != tree {
        // The rules allow each swap of two operators, but the sorted order as a whole may have no
        // valid types.
        let Knowledge { arena, profile, .. } = &mut graph.analysis;
        let term = sorted.term(arena, &wanted);
        if price(arena, profile, &config.prices, &term).is_ok() {
            let id = graph.add_expr_uncanonical(&term);
            if graph::agree(&graph, root, id) {
                graph.union_trusted(root, id, initial_order::NAME);
            }
        }
    }
    let disabled = |name: &str| is_disabled(&config.disabled, name);
    report.saturation = saturate(&mut graph, &rules, disabled, config.limits);
    if let Some(why) = graph.analysis.poisoned.take() {
        return Err(why);
    }
    let at = config.cache.at.as_ref();
    let at = at.map(|step| cache::steps(&graph.analysis.arena, lowered, step));
    let found = choose::cheapest(&graph, config, lowered, at.as_ref(), root);
    let (chosen, priced, stored) = found.ok_or("no plan of finite cost was found")?;
    report.chosen = priced.total;
    report.cached = priced.cached_at.is_some();
    report.cached_row = priced.cached_row;
    report.row_bytes = graph::plan_fact(&graph, root)
        .and_then(|fact| u64::try_from(fact.bytes(wanted.iter())).ok());
    report.stored = stored;
    Ok(Searched {
        start: term,
        normal: tree,
        sorted,
        chosen,
        graph,
        report,
    })
}

/// Returns the cheapest plan that the allowed rules derive from `plan`, and a report. If the search
/// has no reliable result, returns `plan` as written.
pub fn optimize(plan: RowPlan, clauses: &Clauses, config: &Config) -> Result<(RowPlan, Report)> {
    let (plan, builds) = with_builds(plan, config)?;
    let mut arena = Arena::new(Arc::clone(&config.prices));
    let lowered = lowered(&mut arena, &plan, clauses, config)?;
    let mut statistics = Statistics::of(&arena);
    statistics.scans.extend(builds.clone());
    let mut searched = match search(arena, &lowered, config) {
        Ok(searched) => searched,
        Err(why) => return doubted(plan, clauses, why, statistics),
    };
    searched.report.statistics.scans.extend(builds);
    if let (Some(step), false) = (&config.cache.at, searched.report.cached) {
        return Err(cache::refused_at(
            &searched.graph,
            &lowered,
            &config.cache,
            step,
        ));
    }
    let arena = &searched.graph.analysis.arena;
    let raised = raise::raise(arena, &searched.chosen, &lowered.outputs)?;
    let columns = raised.schema.fields().iter().zip(plan.schema.fields());
    if let Some((got, wanted)) = columns.into_iter().find(|(a, b)| a != b) {
        let why = format!("the chosen plan has the column {got} instead of {wanted}");
        return doubted(plan, clauses, why, searched.report.statistics);
    }
    Ok((raised, searched.report))
}

/// Optimises the build side of each lookup of `plan` by itself. Returns `plan` with the optimised
/// build sides, and the statistics that the sources of the build sides state.
pub(super) fn with_builds(
    plan: RowPlan,
    config: &Config,
) -> Result<(RowPlan, BTreeMap<u32, SourceStats>)> {
    // A build side is read only once, so neither a cache nor a profile would pay.
    let config = Config {
        cache: CacheCosts::default(),
        probe: None,
        statistics: config.statistics.as_ref().map(|known| {
            Arc::new(Statistics {
                profile: None,
                ..Statistics::clone(known)
            })
        }),
        ..config.clone()
    };
    let mut scans = BTreeMap::new();
    let plan = plan.rewrite(&mut |mut node| {
        if matches!(node.op, RowOp::Lookup { .. }) {
            let build = node.inputs.swap_remove(1);
            let (build, report) = optimize(build, &Clauses::default(), &config)?;
            scans.extend(report.statistics.scans);
            node.inputs.push(build);
        }
        Ok(node)
    })?;
    Ok((plan, scans))
}

/// Lowers a row plan to the tree from which the search starts. If CACHE AT freezes draws, the
/// operators that draw are pinned.
pub(super) fn lowered(
    arena: &mut Arena,
    plan: &RowPlan,
    clauses: &Clauses,
    config: &Config,
) -> Result<Lowered> {
    let known = config.statistics.as_ref().map(|known| &known.scans);
    let mut lowered = lower::lower(arena, plan, clauses, config.cache.epochs, known)?;
    if let (true, Some(step)) = (clauses.freezes(), &config.cache.at) {
        cache::fix_draws(arena, &mut lowered, step)?;
    }
    Ok(lowered)
}

/// Returns the plan as written, with a report that gives `why`, the reason not to use the search's
/// result.
fn doubted(
    plan: RowPlan,
    clauses: &Clauses,
    why: String,
    statistics: Statistics,
) -> Result<(RowPlan, Report)> {
    if clauses.freezes() {
        return plan_err!(
            "FREEZING RANDOMNESS needs an optimised plan, but the optimiser has no result: {why}"
        );
    }
    let report = Report {
        doubt: Some(why),
        statistics,
        ..Report::default()
    };
    Ok((plan, report))
}
