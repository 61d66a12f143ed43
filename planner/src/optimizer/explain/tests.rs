//! Tests that explanations agree with the searches that they explain.

use std::sync::Arc;

use insta::assert_snapshot;

use super::{Explained, explain};
use crate::optimizer::cache::CacheBudget;
use crate::optimizer::coefficients::Coefficients;
use crate::optimizer::rules::Tier;
use crate::optimizer::saturate::Limits;
use crate::optimizer::tests::plans::{QUERIES, planned};
use crate::optimizer::{Config, Report, optimize};
use crate::units::{bytes_text, cost_text};

/// The example query of the design document.
const DESIGN: &str =
    "SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)),
  'imagenet') AS pixels FROM photos WHERE octet_length(image) > 0 SHUFFLE WITHIN 5 ROWS SEED 42
  BATCH 4 DROP REMAINDER REPEAT 90";

/// A query for which caching pays: its lower operators are expensive and do not draw.
const CACHED: &str =
    "SELECT label, random_hflip(resize(decode_image(image), 8, 8)) AS x FROM photos
  WHERE label > 3 SHUFFLE GLOBALLY BATCH 4 REPEAT 90";

async fn explained(sql: &str, config: &Config) -> (Explained, Report) {
    let (plan, pipeline) = planned(sql).await;
    let (_, report) = optimize(plan.clone(), &pipeline.clauses, config).unwrap();
    let found = explain(&plan, &pipeline.clauses, config, &report).unwrap();
    (found, report)
}

fn cached(freezing: bool) -> Config {
    let mut config = Config::default();
    config.cache.epochs = 90;
    config.cache.budget = Some(CacheBudget {
        bytes: u128::MAX,
        write: 100,
        read: 100,
        row: 1_000,
        price: 0,
        freezing,
    });
    config
}

#[tokio::test]
async fn costs_are_told_at_the_prices_of_the_choice() {
    let mut prices = Coefficients::clone(&Coefficients::declared());
    for cost in prices.functions.values_mut() {
        cost.bytes.ps_per_row += 1_000_000_000;
        cost.floats.ps_per_row += 1_000_000_000;
    }
    let config = Config {
        prices: Arc::new(prices),
        ..Config::default()
    };
    for sql in QUERIES.into_iter().chain([DESIGN, CACHED]) {
        let (found, report) = explained(sql, &config).await;
        assert_eq!(found.caveat, None, "{sql}");
        assert_eq!(found.written.below, report.written, "{sql}");
        assert_eq!(found.chosen.below, report.chosen, "{sql}");
    }
}

fn steps(explained: &Explained) -> String {
    let lines = explained.derivation.steps.iter().map(|step| {
        let site = step.site.as_ref();
        let site = site.map_or_else(
            || format!("{} steps", step.count),
            |(a, b)| format!("{a} | {b}"),
        );
        let (rules, tier) = (step.rules.join(", "), step.tier);
        let backwards = if step.backwards { " backwards" } else { "" };
        let (before, after) = (cost_text(step.before), cost_text(step.after));
        format!("{rules}{backwards} ({tier}): {before} -> {after}: {site}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_same_plan_is_found_with_proofs_and_without() {
    for sql in QUERIES.into_iter().chain([DESIGN, CACHED]) {
        for config in [Config::default(), cached(false), cached(true)] {
            let (plan, pipeline) = planned(sql).await;
            let proofs = Config {
                proofs: true,
                ..config.clone()
            };
            let found = optimize(plan.clone(), &pipeline.clauses, &config).unwrap();
            let again = optimize(plan, &pipeline.clauses, &proofs).unwrap();
            assert_eq!(found.0.to_string(), again.0.to_string(), "{sql}");
            let counts = |report: &Report| (report.saturation.nodes, report.saturation.classes);
            assert_eq!(counts(&found.1), counts(&again.1), "{sql}");
        }
    }
}

#[tokio::test]
async fn the_steps_lead_from_the_written_cost_to_the_chosen_one() {
    for sql in QUERIES.into_iter().chain([DESIGN, CACHED]) {
        for config in [Config::default(), cached(false), cached(true)] {
            let (found, report) = explained(sql, &config).await;
            assert_eq!(found.report.chosen, report.chosen, "{sql}");
            let mut at = report.written;
            for step in &found.derivation.steps {
                assert_eq!(step.before, at, "{sql}: {step:?}");
                at = step.after;
            }
            assert_eq!(at, report.chosen, "{sql}\n{}", steps(&found));
            match found.cache.chosen() {
                Some(point) => assert_eq!(point.total, Ok(report.chosen), "{sql}"),
                None => assert_eq!(found.cache.uncached, report.chosen, "{sql}"),
            }
            assert_eq!(found.cache.chosen().is_some(), report.cached, "{sql}");
        }
    }
}

#[tokio::test]
async fn the_designs_example_is_derived() {
    let mut config = Config::default();
    config.cache.epochs = 90;
    let (found, _) = explained(DESIGN, &config).await;
    assert_snapshot!(steps(&found), @"shuffle-below-row, shuffle-below-filter (exact): 95.1 min -> 95.1 min: 5 steps");
}

#[tokio::test]
async fn a_proof_is_told_step_by_step() {
    let late_filter = "SELECT x, label FROM (SELECT resize(decode_image(image), 8, 8) AS x, label
      FROM photos) AS q WHERE label > 3 BATCH 3";
    let (found, _) = explained(late_filter, &Config::default()).await;
    assert_snapshot!(steps(&found), @"filter-below-row, filter-below-decode (exact): 4.04 min -> 92.7 s: filter label > 3 | x = decode_image(image)");
    let union =
        "SELECT id + 1 AS b FROM (SELECT id, name FROM t UNION ALL SELECT id, name FROM u) AS q
      WHERE name = 'x'";
    let (found, _) = explained(union, &Config::default()).await;
    assert_snapshot!(steps(&found), @"union-distribute (exact): 24.1 ms -> 21.1 ms: filter name = 'x' | union");
    let relaxed = Config {
        tier: Tier::Statistical,
        ..Config::default()
    };
    let gray = "SELECT grayscale(color_jitter(resize(decode_image(image), 64, 64), 0.4, 0.4, 0.4, 0.1)) AS x
      FROM photos WHERE octet_length(image) > 0";
    let (found, _) = explained(gray, &relaxed).await;
    assert_snapshot!(steps(&found), @r#"
    relaxed-swap (statistical): 98.3 s -> 95.0 s: x = grayscale(x) | x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0)
    relaxed-swap (statistical): 95.0 s -> 2.07 min: x = grayscale(x) | x = resize(x, 64, 64)
    gray-into-decode (statistical): 2.07 min -> 69.6 s: x = grayscale(x) | x = decode_image(image)
    "#);
}

#[tokio::test]
async fn a_cache_is_the_last_step_and_every_place_has_its_total_or_refusal() {
    let (found, _) = explained(CACHED, &cached(false)).await;
    let points = found.cache.points.iter().map(|point| {
        let total = match &point.total {
            Ok(total) => cost_text(*total),
            Err(why) => why.clone(),
        };
        let mark = if point.chosen { "*" } else { " " };
        format!(
            "{mark} {} rows, {}: {total}: {}",
            point.rows,
            bytes_text(point.bytes),
            point.text
        )
    });
    let points: Vec<String> = points.collect();
    assert_snapshot!(steps(&found), @r#"
    shuffle-below-row, shuffle-below-filter (exact): 116 min -> 116 min: 4 steps
    cache (exact): 116 min -> 85.5 s: cache | x = resize(x, 8, 8)
    "#);
    assert_snapshot!(points.join("\n"), @r#"
      99981 rows, 10.00 GB: 116 min: scan #0 photos [image, label]
      99981 rows, 10.00 GB: 116 min: scan #0 photos [image, label], shuffled
      33327 rows, 3.33 GB: 114 min: filter label > 3
      33327 rows, 40.0 GB: 21.4 min: x = decode_image(image)
    * 33327 rows, 6.50 MB: 85.5 s: x = resize(x, 8, 8)
      33327 rows, 6.50 MB: it would freeze the draws of x = random_hflip(x, #0): x = random_hflip(x, #0)
      33327 rows, 6.50 MB: its rows cannot be identified in a cache, because of batch 4: batch 4
    "#);
}

#[tokio::test]
async fn why_not_names_the_condition_or_says_that_the_rule_is_left_out() {
    let (found, _) = explained(
        "SELECT * FROM (SELECT id + 1 AS b, name FROM t) AS q WHERE b > 3 AND name = 'x'",
        &Config::default(),
    )
    .await;
    let answer = |rule: &str| {
        let answers = found.why_not(rule).unwrap();
        let lines = answers.into_iter().map(|a| {
            let refused = a.refused.iter();
            let refused: Vec<String> = refused
                .map(|r| format!("{} | {}: {}", r.above, r.below, r.why))
                .collect();
            format!(
                "{} fired {}, used {}, {:?}, {refused:?}",
                a.rule, a.fired, a.used, a.left_out
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(answer("filter-below-row"), @r#"filter-below-row fired 1, used true, None, ["filter b > 3 | b = id + 1: the upper one reads what the lower one writes"]"#);
    assert_snapshot!(answer("relaxed-swap"), @r#"relaxed-swap fired 0, used false, Some("it may change the stream; OPTIONS (relax = 'statistical') would allow it"), []"#);
    assert_snapshot!(answer("fuse-images"), @r#"fuse-images fired 0, used false, Some("it tidies the chosen plan wherever it can, and is never refused"), []"#);
    assert_snapshot!(answer("concat"), @r#"
    union-distribute fired 0, used false, None, []
    union-share fired 0, used false, None, []
    "#);
    let error = found.why_not("filter-below-rows").unwrap_err();
    assert_snapshot!(error, @r#"unknown rewrite rule "filter-below-rows"; did you mean "filter-below-row"?"#);
}

#[tokio::test]
async fn a_limit_is_the_reason_to_stop() {
    let mut config = Config::default();
    assert_eq!(
        explained(DESIGN, &config).await.0.stop.to_string(),
        "saturated"
    );
    config.limits = Limits {
        iterations: 1,
        ..Limits::default()
    };
    let stop = explained(DESIGN, &config).await.0.stop;
    assert_eq!(stop.to_string(), "stopped at its limit of 1 iterations");
    config.limits = Limits {
        nodes: 20,
        ..Limits::default()
    };
    let stop = explained(DESIGN, &config).await.0.stop;
    assert_eq!(stop.to_string(), "stopped at its limit of 20 nodes");
    config.limits = Limits {
        columns: 5,
        ..Limits::default()
    };
    let stop = explained(DESIGN, &config).await.0.stop;
    assert_eq!(
        stop.to_string(),
        "stopped at its limit of 5 columns in all plans together"
    );
}

#[tokio::test]
async fn a_doubt_is_explained_by_the_written_plan() {
    let (plan, pipeline) = planned(DESIGN).await;
    let report = Report {
        doubt: Some("no".to_owned()),
        ..Report::default()
    };
    let found = explain(&plan, &pipeline.clauses, &Config::default(), &report).unwrap();
    assert_eq!(found.written, found.chosen);
    assert!(found.report.written > 0 && found.derivation.steps.is_empty());
    let answer = &found.why_not("row-swap").unwrap()[0];
    assert_eq!(
        answer.left_out.as_deref(),
        Some("the written plan runs: no")
    );
}

#[tokio::test]
async fn a_proof_of_another_plan_is_no_proof_of_this_one() {
    let (plan, pipeline) = planned(DESIGN).await;
    let (_, mut report) = optimize(plan.clone(), &pipeline.clauses, &Config::default()).unwrap();
    let explained = |report: &Report| {
        let found = explain(&plan, &pipeline.clauses, &Config::default(), report).unwrap();
        found.caveat
    };
    assert_eq!(explained(&report), None);
    report.chosen = 1_000;
    assert_snapshot!(explained(&report).unwrap(), @"the search reached a limit and, repeated with proofs, chose another plan, which costs 73.3 s: the derivation and the cache points are those of that plan");
}

#[tokio::test]
async fn a_picture_shows_both_plans_and_what_moved() {
    let (found, _) = explained(DESIGN, &Config::default()).await;
    let panels = found.panels();
    let picture = super::picture::svg(&panels);
    for part in [
        "Written: ",
        "Chosen: ",
        "shuffle",
        "decode_image(image)",
        "octet_length",
    ] {
        assert!(picture.contains(part), "{part} in\n{picture}");
    }
    let mut moved = Vec::new();
    for panel in &panels {
        let mut at = Some(&panel.root);
        while let Some(node) = at {
            moved.extend(node.highlighted.then(|| node.lines[0].clone()));
            at = node.inputs.first();
        }
    }
    assert_snapshot!(moved.join("\n"), @r#"
    shuffle
    shuffle
    "#);
    let relaxed = Config {
        tier: Tier::Statistical,
        ..Config::default()
    };
    let (unchanged, _) = explained("SELECT id FROM t BATCH 2", &relaxed).await;
    assert!(
        unchanged
            .panels()
            .iter()
            .all(|panel| !panel.root.highlighted)
    );
}
