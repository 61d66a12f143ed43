//! The optimiser's part of EXPLAIN, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Formatter};
use std::time::Duration;

use forebay_planner::optimizer::explain::Explained;
use forebay_planner::optimizer::explain::derivation::{CACHE, DerivationStep};
use forebay_planner::optimizer::explain::plan::PlanNode;
use forebay_planner::units::{bytes_text, cost_text, price_text};
use serde_json::{Value, json};

/// Returns the heading of a plan: the plan's name and cost.
pub(super) fn heading(name: &str, cost: u128, explained: &Explained) -> String {
    format!(
        "{name} ({} over {})",
        cost_text(cost),
        epochs_text(explained)
    )
}

fn epochs_text(explained: &Explained) -> String {
    match explained.epochs {
        1 => "1 epoch".to_owned(),
        epochs => format!("{epochs} epochs"),
    }
}

/// Writes the lines about the optimiser that every EXPLAIN has.
pub(super) fn short(explained: &Explained, f: &mut Formatter<'_>) -> fmt::Result {
    let report = &explained.report;
    writeln!(f, "Optimiser")?;
    if let Some(why) = &report.doubt {
        return writeln!(f, "  the written plan runs: {why}; please report it");
    }
    let (from, to) = (cost_text(report.written), cost_text(report.chosen));
    let change = percent(report.written, report.chosen);
    let epochs = epochs_text(explained);
    writeln!(
        f,
        "  cost      {from} to {to} of one core over {epochs}, as estimated ({change})"
    )?;
    writeln!(f, "  rewrites  {}", explained.derivation.rewrites())?;
    writeln!(f, "  cache     {}", cache_text(explained))
}

/// Returns a text that names the cached rows, or the reason why no rows are cached.
fn cache_text(explained: &Explained) -> String {
    let table = &explained.cache;
    if let Some(point) = table.chosen() {
        let (bytes, saved) = (
            bytes_text(point.bytes),
            percent(table.uncached, explained.report.chosen),
        );
        return format!("the rows of {}: {bytes}, {saved}", point.text);
    }
    let mut legal = table
        .points
        .iter()
        .filter_map(|point| point.total.as_ref().ok());
    match (explained.config.cache.possible(), legal.next()) {
        (false, _) => "none: no cache is configured".to_owned(),
        (true, Some(_)) => "none: a cache would cost more than it saves".to_owned(),
        (true, None) => "none: no rows of this plan may be cached".to_owned(),
    }
}

/// Writes all details about the optimiser, for EXPLAIN VERBOSE.
pub(super) fn long(
    explained: &Explained,
    planning: Duration,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    let search = &explained.report.saturation;
    writeln!(
        f,
        "  search    {} nodes in {} classes, {} iterations: {}",
        search.nodes, search.classes, search.iterations, explained.stop
    )?;
    writeln!(f, "  planned in {:.1} ms", planning.as_secs_f64() * 1e3)?;
    if let Some(caveat) = &explained.caveat {
        writeln!(f, "  {caveat}")?;
    }
    writeln!(f, "Derivation (costs over all epochs)")?;
    let written = cost_text(explained.report.written);
    writeln!(f, "  {:>7} {written:>9} {:>8}  as written", "", "")?;
    let mut number = 0;
    for step in &explained.derivation.steps {
        let first = number + 1;
        number += step.count;
        let numbers = match step.count {
            1 => first.to_string(),
            _ => format!("{first}-{number}"),
        };
        let (cost, change) = (cost_text(step.after), percent(step.before, step.after));
        writeln!(
            f,
            "  {numbers:>7} {cost:>9} {change:>8}  {}",
            step_text(step)
        )?;
    }
    writeln!(f, "Rules")?;
    writeln!(f, "  fired    {}", counts_text(&explained.fired))?;
    writeln!(f, "  refused  {}", counts_text(&explained.refusals()))?;
    let price = match disk_price(explained) {
        0 => String::new(),
        price => format!(", {} for keeping them", price_text(price)),
    };
    writeln!(
        f,
        "Cache (bytes that are kept, costs over all epochs{price})"
    )?;
    writeln!(f, "  {:>11} {:>9} {:>9}  rows of", "rows", "bytes", "cost")?;
    for point in &explained.cache.points {
        let (bytes, mark) = (bytes_text(point.bytes), mark(point.chosen));
        let (cost, why) = match &point.total {
            Ok(total) => (cost_text(*total), String::new()),
            Err(why) => ("-".to_owned(), format!(": {why}")),
        };
        let (rows, text) = (point.rows, &point.text);
        writeln!(f, "  {mark}{rows:>10} {bytes:>9} {cost:>9}  {text}{why}")?;
    }
    let none = mark(explained.cache.chosen().is_none());
    let uncached = cost_text(explained.cache.uncached);
    writeln!(f, "  {none}{:>10} {:>9} {uncached:>9}  no cache", "", "")
}

/// Returns the cost, in picoseconds, that planning charges for each byte that a cache keeps on
/// disk.
fn disk_price(explained: &Explained) -> u128 {
    let budget = explained.config.cache.budget;
    budget.map_or(0, |budget| budget.price)
}

fn mark(chosen: bool) -> &'static str {
    if chosen { "*" } else { " " }
}

fn step_text(step: &DerivationStep) -> String {
    let mut text = format!("{} ({})", step.rules.join(", "), step.tier);
    if step.backwards {
        text += " backwards";
    }
    if let Some((above, below)) = &step.site {
        text += &match step.count {
            _ if above == CACHE => format!(": {below}"),
            1 => format!(": {above} | {below}"),
            _ => format!(": {above} | .. {below}"),
        };
    }
    text
}

fn counts_text(counts: &BTreeMap<&'static str, usize>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let counts = counts.iter().map(|(rule, count)| format!("{rule} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// Formats the relative change from `from` to `to` in percent, with its sign.
fn percent(from: u128, to: u128) -> String {
    let change = 100.0 * (to as f64 / (from as f64).max(1.0) - 1.0);
    match change.abs() {
        0.0..0.05 => "0 %".to_owned(),
        0.05..10.0 => format!("{change:+.1} %"),
        _ => format!("{change:+.0} %"),
    }
}

/// Converts a cost in picoseconds to seconds.
fn seconds(cost: u128) -> f64 {
    cost as f64 / 1e12
}

/// Returns all details about the optimiser as one JSON object.
pub(super) fn json(explained: &Explained, planning: Duration) -> Value {
    let report = &explained.report;
    let search = &report.saturation;
    let steps = explained.derivation.steps.iter().map(|step| {
        json!({
            "rules": step.rules, "steps": step.count, "backwards": step.backwards,
            "tier": step.tier.to_string(),
            "above": step.site.as_ref().map(|(above, _)| above),
            "below": step.site.as_ref().map(|(_, below)| below),
            "seconds_before": seconds(step.before), "seconds_after": seconds(step.after),
        })
    });
    let points = explained.cache.points.iter().map(|point| {
        json!({
            "operator": point.text, "rows": point.rows as f64, "bytes": point.bytes as f64,
            "seconds": point.total.as_ref().ok().map(|&total| seconds(total)),
            "refused": point.total.as_ref().err(), "chosen": point.chosen,
        })
    });
    let refused = explained.refused.iter().map(|refused| {
        json!({
            "rule": refused.rule, "above": refused.above, "below": refused.below,
            "why": refused.why,
        })
    });
    json!({
        "epochs": explained.epochs,
        "written_seconds": seconds(report.written),
        "chosen_seconds": seconds(report.chosen),
        "written": plan_json(&explained.written),
        "chosen": plan_json(&explained.chosen),
        "derivation": steps.collect::<Vec<_>>(),
        "fired": explained.fired,
        "refused": refused.collect::<Vec<_>>(),
        "cache": {
            "points": points.collect::<Vec<_>>(),
            "seconds_without": seconds(explained.cache.uncached),
            "seconds_per_gb_kept": disk_price(explained) as f64 / 1e3,
        },
        "search": {
            "nodes": search.nodes, "classes": search.classes, "iterations": search.iterations,
            "saturated": search.saturated, "stop": explained.stop.to_string(),
            "planning_seconds": planning.as_secs_f64(),
        },
        "doubt": report.doubt,
        "caveat": explained.caveat,
    })
}

fn plan_json(node: &PlanNode) -> Value {
    json!({
        "operator": node.text, "rows": node.rows as f64, "row_bytes": node.row_bytes as f64,
        "seconds_per_epoch": seconds(node.own), "cached": node.cached,
        "inputs": node.inputs.iter().map(plan_json).collect::<Vec<_>>(),
    })
}
