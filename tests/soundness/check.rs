//! One pipeline as written, optimised in every tier, and with one rule alone.

use std::collections::{BTreeMap, BTreeSet};

use forebay_planner::catalog::Catalog;
use forebay_planner::clauses::{Clauses, Optimize, Relax};
use forebay_planner::compile::Compiled;
use forebay_planner::error::message_of;
use forebay_planner::optimizer::rules::{rule_families, rules};
use forebay_planner::pipeline::Pipeline;
use forebay_planner::sql::{Statement, parse};
use forebay_runtime::engine::RunConfig;

use crate::case::Case;
use crate::stream::Stream;

/// The tiers, the least first.
const TIERS: [Relax; 4] = [
    Relax::Exact,
    Relax::Numeric,
    Relax::Order,
    Relax::Statistical,
];

/// What came of a pipeline.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It cannot be planned.
    Refused(String),
    /// Every plan gave what its tier owes.
    Sound(Seen),
    /// A plan did not.
    Unsound(String),
}

/// What a sound pipeline showed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Whether its run ended in an error.
    pub(crate) failed: bool,
    /// Whether rows of it failed and were settled.
    pub(crate) settled: bool,
    /// Rows put out.
    pub(crate) rows: usize,
    /// Plans that were run beside the written one.
    pub(crate) plans: usize,
    /// How often each rule fired, in the highest tier.
    pub(crate) fired: BTreeMap<&'static str, usize>,
    /// Whether the rule that was tried alone changed the plan.
    pub(crate) alone: bool,
}

/// A rule's tier; those that are not over two operators are exact.
fn tier_of(rule: &str) -> Relax {
    let of_rule = rules().into_iter().find(|r| r.name == rule);
    of_rule.map_or(Relax::Exact, |r| r.tier)
}

/// Runs a pipeline every way.
pub(crate) async fn check(catalog: &Catalog, case: &Case, rule: &'static str) -> Verdict {
    let (pipeline, written) = match planned(catalog, &case.sql()).await {
        Ok(planned) => planned,
        Err(why) => return Verdict::Refused(why),
    };
    let config = RunConfig {
        threads: Some(1),
        segment_rows: case.segment_rows,
        ..RunConfig::default()
    };
    let expected = Stream::of(&written, &config).await;
    let mut seen = Seen {
        failed: expected.failed(),
        settled: expected.settled_failures(),
        rows: expected.rows(),
        ..Seen::default()
    };
    let others = rule_families().into_iter().map(|(name, _)| name.to_owned());
    let others: BTreeSet<String> = others.filter(|name| name != rule).collect();
    let tiers = TIERS.map(|tier| (tier, BTreeSet::new()));
    let alone = (tier_of(rule), others);
    let mut known = BTreeSet::new();
    for (tier, disabled) in tiers.into_iter().chain([alone]) {
        let is_alone = !disabled.is_empty();
        let how = match is_alone {
            true => format!("{rule} alone"),
            false => format!("relax {tier}"),
        };
        let compiled = match optimised(&pipeline, tier, disabled) {
            Ok(compiled) => compiled,
            Err(why) => return Verdict::Unsound(format!("{how}: no plan: {why}")),
        };
        let report = compiled.report.clone().unwrap_or_default();
        if let Some(doubt) = report.doubt {
            return Verdict::Unsound(format!("{how}: the optimiser doubts its plan: {doubt}"));
        }
        if is_alone {
            seen.alone = compiled.chosen.to_string() != written.written.to_string();
        } else if tier == Relax::Statistical {
            seen.fired = report.saturation.fired;
            for (name, _) in report.before {
                *seen.fired.entry(name).or_default() += 1;
            }
        }
        // One plan gives one stream.
        if !known.insert(compiled.chosen.to_string()) {
            continue;
        }
        seen.plans += 1;
        let stream = Stream::of(&compiled, &config).await;
        if let Some(why) = expected.differs(&stream, tier, case) {
            return Verdict::Unsound(format!(
                "{how}: {why}\nwritten plan\n{}\nchosen plan\n{}",
                written.written, compiled.chosen
            ));
        }
    }
    Verdict::Sound(seen)
}

async fn planned(catalog: &Catalog, sql: &str) -> Result<(Pipeline, Compiled), String> {
    let statements = parse(sql).map_err(|e| e.to_string())?;
    let [Statement::Query(query)] = statements.as_slice() else {
        return Err("no query".to_owned());
    };
    let pipeline = catalog.plan_query(query).await.map_err(|e| e.to_string())?;
    let mut clauses = pipeline.clauses.clone();
    clauses.options.optimize = Optimize::None;
    let written = compile(&pipeline, clauses)?;
    Ok((pipeline, written))
}

fn optimised(pipeline: &Pipeline, tier: Relax, disabled: BTreeSet<String>) -> Result<Compiled, String> {
    let mut clauses = pipeline.clauses.clone();
    clauses.options.relax = tier;
    clauses.options.disable_rules = disabled;
    compile(pipeline, clauses)
}

fn compile(pipeline: &Pipeline, clauses: Clauses) -> Result<Compiled, String> {
    Compiled::new(&pipeline.plan, clauses).map_err(|e| message_of(&e))
}
