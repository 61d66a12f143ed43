//! Explains how a plan was chosen, by repeating the search with proofs.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};

use super::cache_points::CacheTable;
use super::derivation::{Derivation, Told};
use super::explained::{Explained, SearchEnd};
use super::plan::{self, Located, TermWalk};
use super::refused::RefusedRewrite;
use super::sorting::moves;
use crate::clauses::Clauses;
use crate::error::PlanError;
use crate::optimizer::arena::Arena;
use crate::optimizer::config::Config;
use crate::optimizer::graph::Knowledge;
use crate::optimizer::lower::Lowered;
use crate::optimizer::price::{price_each, price_in};
use crate::optimizer::profile::Profile;
use crate::optimizer::report::Report;
use crate::optimizer::search::{Searched, lowered, search, with_builds};
use crate::rows::RowPlan;

/// Explains how [`optimize`](crate::optimizer::optimize) optimised `plan`. `report` is the report
/// that `optimize` returned.
pub fn explain(
    plan: &RowPlan,
    clauses: &Clauses,
    config: &Config,
    report: &Report,
) -> Result<Explained> {
    let config = Config {
        proofs: true,
        ..config.clone()
    };
    let (plan, _) = with_builds(plan.clone(), &config)?;
    let mut arena = Arena::new(Arc::clone(&config.prices));
    let lowered = lowered(&mut arena, &plan, clauses, &config)?;
    let found = match &report.doubt {
        None => search(arena, &lowered, &config),
        Some(why) => Err(why.clone()),
    };
    match found {
        Ok(searched) => told(searched, &lowered, config).map(|told| told.of(report)),
        Err(why) => as_written(&plan, clauses, config, why),
    }
    .map_err(|why| DataFusionError::from(PlanError::internal(why)))
}

/// Builds the explanation of a finished search with proofs.
pub(in crate::optimizer) fn told(
    searched: Searched,
    lowered: &Lowered,
    config: Config,
) -> Result<Explained, String> {
    let Searched {
        mut graph,
        start,
        normal,
        sorted,
        chosen,
        report,
    } = searched;
    let wanted = lowered.wanted();
    let Knowledge { arena, profile, .. } = &mut graph.analysis;
    let profile = profile.clone();
    let written = lowered.tree.term(arena, &wanted);
    let written_nodes = price_each(arena, &profile, &config.prices, &written)?;
    let written = TermWalk::new(&written, &written_nodes).plan(arena, None);
    let root = graph
        .lookup_expr(&start)
        .ok_or("the plan from which the search started is not in the e-graph")?;
    let located = plan::locate(&graph, root, &chosen);
    let Located { term, kept } = located.ok_or("the chosen plan is not in the e-graph")?;
    let priced =
        price_in(&graph, &config.prices, &term).ok_or("the chosen plan is not in the e-graph")?;
    let walk = TermWalk::new(&term, &priced);
    let rules = config.rules();
    let parts = Told {
        lowered,
        config: &config,
        profile: &profile,
        rules: &rules,
        before: &report.before,
        sorting: moves(&mut graph.analysis.arena, &rules, &normal, &sorted),
        direct: moves(&mut graph.analysis.arena, &rules, &normal, &chosen),
        normal,
        written: report.written,
    };
    let mut derivation = Derivation::new(&mut graph, &parts, &start, &term)?;
    let arena = &graph.analysis.arena;
    let stored = report.stored.as_ref().map_or(0, |point| point.rows);
    let cache = CacheTable::new(arena, &walk, &config, lowered, kept, stored);
    if let Some(at) = kept {
        derivation.cached(walk.text(arena, at), report.written, report.chosen);
    }
    let search = &report.saturation;
    let mut fired = search.fired.clone();
    let sorting = parts.sorting.iter().flatten().flatten();
    for (rule, _) in report.before.iter().chain(sorting) {
        *fired.entry(rule).or_default() += 1;
    }
    Ok(Explained {
        written,
        chosen: walk.plan(arena, kept),
        derivation,
        cache,
        epochs: config.cache.epochs,
        stop: SearchEnd::of(search, config.limits),
        fired,
        refused: RefusedRewrite::all(arena, search),
        report,
        config,
        caveat: None,
    })
}

/// Builds the explanation of a plan that runs as written for the reason `why`.
fn as_written(
    plan: &RowPlan,
    clauses: &Clauses,
    config: Config,
    why: String,
) -> Result<Explained, String> {
    let mut arena = Arena::new(Arc::clone(&config.prices));
    let lowered = lowered(&mut arena, plan, clauses, &config).map_err(|e| e.strip_backtrace())?;
    let term = lowered.tree.term(&mut arena, &lowered.wanted());
    let priced = price_each(&mut arena, &Profile::default(), &config.prices, &term)?;
    let walk = TermWalk::new(&term, &priced);
    let written = walk.plan(&arena, None);
    let total = written.below.saturating_mul(config.cache.epochs.into());
    Ok(Explained {
        report: Report {
            written: total,
            chosen: total,
            doubt: Some(why),
            ..Report::default()
        },
        epochs: config.cache.epochs,
        chosen: written.clone(),
        written,
        derivation: Derivation::default(),
        cache: CacheTable::new(&arena, &walk, &config, &lowered, None, 0),
        stop: SearchEnd::Saturated,
        fired: BTreeMap::new(),
        refused: Vec::new(),
        config,
        caveat: None,
    })
}
