//! Checks one pipeline as written, optimised in every tier, and with each rule alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::Result as DataFusionResult;
use forebay_planner::catalog::Catalog;
use forebay_planner::clauses::{Optimize, Relax};
use forebay_planner::compile::Compiled;
use forebay_planner::error::message_of;
use forebay_planner::optimizer::coefficients::Coefficients;
use forebay_planner::optimizer::rules::{is_disabled, rule_families, rules};
use forebay_planner::optimizer::{Config, PlanningContext, optimize};
use forebay_planner::pipeline::Pipeline;
use forebay_planner::rows::finalize::finalize;
use forebay_planner::sql::{Statement, parse};
use forebay_runtime::run::{RunConfig, RunInternals};

use crate::case::Case;
use crate::draw::Draw;
use crate::stream::Stream;

/// Maximum number of nodes in a search of the optimiser: in a debug build, 1,000 take about 0.2 s.
const NODES: usize = 1_000;
/// The tiers, in ascending order.
const TIERS: [Relax; 4] = [
    Relax::Exact,
    Relax::Numeric,
    Relax::Order,
    Relax::Statistical,
];

/// The result of checking a pipeline.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The pipeline cannot be planned.
    Refused(String),
    /// Every plan satisfied its tier.
    Sound(Seen),
    /// Some plan did not satisfy its tier.
    Unsound(String),
}

/// Observations about a sound pipeline.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// True if the pipeline's run ended with an error.
    pub(crate) failed: bool,
    /// True if some rows failed and were settled.
    pub(crate) settled: bool,
    /// Number of rows in the pipeline's stream.
    pub(crate) rows: usize,
    /// Number of plans that were run besides the written one.
    pub(crate) plans: usize,
    /// Number of times each rule fired, in the highest tier.
    pub(crate) fired: BTreeMap<&'static str, usize>,
    /// The rules that fired alone, except those that only tidy a chosen plan.
    pub(crate) alone: BTreeSet<&'static str>,
}

/// Returns a rule's tier. Rules that are not about two operators are exact.
fn tier_of(rule: &str) -> Relax {
    let of_rule = rules().into_iter().find(|r| r.name == rule);
    of_rule.map_or(Relax::Exact, |r| r.tier)
}

/// Returns the tiers that have rules beyond those of the lower tiers.
fn tiers() -> Vec<Relax> {
    let has_rules = |tier: &Relax| *tier == Relax::Exact || rules().iter().any(|r| r.tier == *tier);
    TIERS.into_iter().filter(has_rules).collect()
}

/// A setting of the optimiser under which a pipeline is planned.
struct Way {
    name: String,
    tier: Relax,
    disabled: BTreeSet<String>,
    prices: Arc<Coefficients>,
    /// The only rule that is enabled; `None` if all rules of the tier are.
    alone: Option<&'static str>,
}

impl Way {
    fn new(name: String, tier: Relax) -> Self {
        Self {
            name,
            tier,
            disabled: BTreeSet::new(),
            prices: Coefficients::declared(),
            alone: None,
        }
    }
}

/// Returns all settings: every tier; the exact rules under prices that favour other plans; and each
/// rule alone, also under these prices.
fn ways(odd: &Arc<Coefficients>) -> Vec<Way> {
    let mut ways: Vec<Way> = tiers()
        .into_iter()
        .map(|tier| Way::new(format!("relax {tier}"), tier))
        .collect();
    ways.push(Way {
        prices: Arc::clone(odd),
        ..Way::new("relax exact, odd prices".to_owned(), Relax::Exact)
    });
    let names = || rule_families().into_iter().map(|(name, _)| name);
    ways.extend(names().map(|rule| {
        Way {
            prices: Arc::clone(odd),
            disabled: names()
                .filter(|name| *name != rule)
                .map(str::to_owned)
                .collect(),
            alone: Some(rule),
            ..Way::new(format!("{rule} alone, {odd:?}"), tier_of(rule))
        }
    }));
    ways
}

/// Returns prices unlike those of any machine.
pub(crate) fn odd_prices(draw: &mut Draw) -> Arc<Coefficients> {
    let mut price = || draw.pick(&[0, 1, 100, 10_000, 10_000_000]);
    let mut odd = Coefficients::clone(&Coefficients::declared());
    (odd.copy, odd.row) = (price(), price());
    let functions = odd.functions.values_mut();
    let of_functions = functions.flat_map(|cost| [&mut cost.bytes, &mut cost.floats]);
    let of_scans = odd.scans.values_mut();
    let of_scans =
        of_scans.flat_map(|cost| [&mut cost.stored, &mut cost.within, &mut cost.globally]);
    for cost in of_scans.chain(of_functions) {
        (cost.ps_per_row, cost.ps_per_value_in) = (price(), price());
    }
    Arc::new(odd)
}

/// Runs a pipeline under every setting.
pub(crate) async fn check(catalog: &Catalog, case: &Case, odd: &Arc<Coefficients>) -> Verdict {
    let (pipeline, written) = match planned(catalog, &case.sql()).await {
        Ok(planned) => planned,
        Err(why) => return Verdict::Refused(why),
    };
    let config = RunConfig {
        threads: Some(1),
        internals: RunInternals {
            segment_rows: case.segment_rows,
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    let expected = Stream::of(&written, &config).await;
    let mut seen = Seen {
        failed: expected.failed(),
        settled: expected.settled_failures(),
        rows: expected.rows(),
        ..Seen::default()
    };
    let mut known = BTreeSet::new();
    for way in ways(odd) {
        let compiled = match optimised(&pipeline, &written, &way) {
            Ok(compiled) => compiled,
            Err(why) => {
                let why = message_of(&why);
                return Verdict::Unsound(format!("{}: no plan: {why}", way.name));
            }
        };
        let report = compiled.report.clone().unwrap_or_default();
        if let Some(doubt) = report.doubt {
            return Verdict::Unsound(format!("{}: a doubtful plan: {doubt}", way.name));
        }
        let mut fired = report.saturation.fired;
        for (name, _) in report.before {
            *fired.entry(name).or_default() += 1;
        }
        if let Some(rule) = way.alone {
            seen.alone.extend(fired.contains_key(rule).then_some(rule));
        } else if way.tier == Relax::Statistical {
            seen.fired = fired;
        }
        // A plan that was already run is skipped, as it would give the same stream.
        let hash = match compiled.plan_hash() {
            Ok(hash) => hash,
            Err(why) => return Verdict::Unsound(format!("{}: no text: {why}", way.name)),
        };
        if !known.insert(hash) {
            continue;
        }
        seen.plans += 1;
        let stream = Stream::of(&compiled, &config).await;
        if let Some(why) = expected.differs(&stream, way.tier, case) {
            return Verdict::Unsound(format!(
                "{}: {why}\nwritten plan\n{}\nchosen plan\n{}",
                way.name, written.written, compiled.chosen
            ));
        }
    }
    match expected.refused {
        Some(why) => Verdict::Refused(why),
        None => Verdict::Sound(seen),
    }
}

/// Plans a query. Returns its pipeline, and the pipeline compiled as written.
pub(crate) async fn planned(catalog: &Catalog, sql: &str) -> Result<(Pipeline, Compiled), String> {
    let statements = parse(sql).map_err(|e| e.to_string())?;
    let [Statement::Query(query)] = statements.as_slice() else {
        return Err("no query".to_owned());
    };
    let pipeline = catalog.plan_query(query).await.map_err(|e| e.to_string())?;
    let mut clauses = pipeline.clauses.clone();
    clauses.options.optimize = Optimize::Off;
    let written = Compiled::new(&pipeline.plan, clauses).map_err(|e| message_of(&e))?;
    Ok((pipeline, written))
}

/// Returns the rows of a query, after checking that all tiers give the same rows in the same order;
/// or the error.
pub(crate) async fn tried(catalog: &Catalog, sql: &str) -> Result<Vec<(String, u64)>, String> {
    let (pipeline, written) = planned(catalog, sql).await?;
    let config = RunConfig::default();
    let expected = Stream::of(&written, &config).await;
    for tier in TIERS {
        let compiled = in_tier(&pipeline, &written, tier);
        let stream = Stream::of(&compiled, &config).await;
        assert_eq!(expected.differs_exactly(&stream), None, "{tier}: {sql}");
    }
    expected.rows_or_error()
}

/// Returns the plan that is chosen in a tier.
pub(crate) fn in_tier(pipeline: &Pipeline, written: &Compiled, tier: Relax) -> Compiled {
    optimised(pipeline, written, &Way::new(tier.to_string(), tier)).unwrap()
}

/// Compiles as [`Compiled::new`] does, with a smaller search.
fn optimised(pipeline: &Pipeline, written: &Compiled, way: &Way) -> DataFusionResult<Compiled> {
    let mut clauses = pipeline.clauses.clone();
    clauses.options.relax = way.tier;
    clauses.options.disable_rules = way.disabled.clone();
    let machine = PlanningContext {
        prices: Arc::clone(&way.prices),
        ..PlanningContext::default()
    };
    let mut config = Config::of(&clauses, &machine)?;
    config.limits.nodes = NODES;
    let (chosen, report) = optimize(written.written.clone(), &clauses, &config)?;
    let chosen = finalize(chosen, |rule| is_disabled(&config.disabled, rule))?;
    Ok(Compiled {
        chosen,
        report: Some(report),
        clauses,
        ..written.clone()
    })
}
