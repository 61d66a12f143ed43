//! Checks that one pipeline has the same stream as written, as optimised in every tier, and as
//! optimised with each rule alone.

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

/// Maximum number of plan nodes in a search of the optimiser. In a debug build, 1,000 nodes take
/// about 0.2 s.
const NODES: usize = 1_000;
/// The tiers of rewrites, from the strictest to the most permissive.
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
    /// The stream of every plan satisfied the guarantee of its tier.
    Sound(Seen),
    /// The stream of some plan did not satisfy the guarantee of its tier. The text describes the
    /// difference.
    Unsound(String),
}

/// Facts observed while a sound pipeline was checked, for the statistics of the test.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// True if the pipeline's run ended with an error.
    pub(crate) failed: bool,
    /// True if some rows failed but did not end the run.
    pub(crate) settled: bool,
    /// Number of rows in the pipeline's stream.
    pub(crate) rows: usize,
    /// Number of plans that were run in addition to the written one.
    pub(crate) plans: usize,
    /// Number of times that each rule was applied in the highest tier.
    pub(crate) fired: BTreeMap<&'static str, usize>,
    /// The rules that were applied when no other rule was enabled, except rules that only tidy a
    /// chosen plan.
    pub(crate) alone: BTreeSet<&'static str>,
}

/// Returns the tier of the rule named `rule`. Rules that are not in the list `rules()` of rules
/// over pairs of operators are exact.
fn tier_of(rule: &str) -> Relax {
    let of_rule = rules().into_iter().find(|r| r.name == rule);
    of_rule.map_or(Relax::Exact, |r| r.tier)
}

/// Returns the exact tier, and each other tier that has at least one rule.
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
    /// The only rule that is enabled; `None` if all rules of the tier are enabled.
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

/// Returns all settings: every tier; the exact rules under the prices `odd`, which favour other
/// plans; and each rule alone, also under `odd`.
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
            ..Way::new(format!("{rule} alone, odd prices"), tier_of(rule))
        }
    }));
    ways
}

/// Returns random prices, which no real machine has.
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

/// Runs the pipeline under every setting, and compares each stream with that of the written plan.
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
        // A plan that has already been run under another setting is skipped.
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

/// Plans a query. Returns its pipeline, and the plan compiled without the optimiser.
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

/// Returns the file and row number of each row of a query, or the query's error. Panics if two
/// tiers differ in the rows, in their order or in the error.
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

/// Returns the plan that the optimiser chooses in the tier `tier`.
pub(crate) fn in_tier(pipeline: &Pipeline, written: &Compiled, tier: Relax) -> Compiled {
    optimised(pipeline, written, &Way::new(tier.to_string(), tier)).unwrap()
}

/// Compiles as [`Compiled::new`] does, but limits the optimiser's search to `NODES` nodes.
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
