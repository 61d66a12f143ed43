//! Tests of saved plans: the pipelines for which a saved plan is reproduced, and the pipelines for
//! which a saved plan is refused.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::optimizer::PlanningContext;
use crate::optimizer::coefficients::Coefficients;
use crate::optimizer::profile::{Evaluated, Probe};
use crate::pipeline::Pipeline;
use crate::testing::planned;

/// Returns the SQL of a pipeline in which prices decide the order of two operators: resizing is
/// cheaper after `grayscale`, which leaves one channel, and `grayscale` is cheaper after resizing,
/// which leaves a small image.
fn relaxed(relax: &str) -> String {
    format!(
        "SELECT grayscale(resize(decode_image(image), 64, 64)) AS x FROM photos BATCH 2
         OPTIONS (disable_rules = 'gray-into-decode', relax = '{relax}')"
    )
}

/// Returns the planning context of a machine on which `function` is expensive.
fn dear(function: &str) -> PlanningContext {
    let mut prices = Coefficients::clone(&Coefficients::declared());
    if let Some(cost) = prices.functions.get_mut(function) {
        cost.bytes.ps_per_value_in = 1_000_000;
    }
    PlanningContext {
        prices: Arc::new(prices),
        ..PlanningContext::default()
    }
}

fn compiled_on(machine: &PlanningContext, pipeline: &Pipeline) -> Compiled {
    Compiled::on(machine, &pipeline.plan, pipeline.clauses.clone()).unwrap()
}

fn saved(machine: &PlanningContext, pipeline: &Pipeline) -> SavedPlan {
    SavedPlan::of(&compiled_on(machine, pipeline), Some("p")).unwrap()
}

fn refusal(saved: &SavedPlan, pipeline: &Pipeline) -> String {
    let refused = saved.compile(&pipeline.plan, pipeline.clauses.clone());
    refused.unwrap_err().to_string()
}

/// The JSON text of a saved plan after a change.
fn changed(saved: &SavedPlan, change: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(&saved.to_json().unwrap()).unwrap();
    change(&mut value);
    value.to_string()
}

#[tokio::test]
async fn a_file_gives_back_what_was_saved_and_two_compilations_the_same_file() {
    let pipeline = planned(&relaxed("statistical")).await;
    let first = saved(&dear("resize"), &pipeline);
    let text = first.to_json().unwrap();
    assert_eq!(SavedPlan::from_json(&text).unwrap(), first);
    let again = planned(&relaxed("statistical")).await;
    assert_eq!(saved(&dear("resize"), &again).to_json().unwrap(), text);
    // A pipeline that was compiled from a saved plan is saved as an equal plan.
    let (compiled, differs) = first.compile(&again.plan, again.clauses.clone()).unwrap();
    assert_eq!(differs, None);
    assert_eq!(SavedPlan::of(&compiled, Some("p")).unwrap(), first);
}

#[tokio::test]
async fn prices_that_lead_elsewhere_lead_to_the_saved_plan_with_it() {
    let pipeline = planned(&relaxed("statistical")).await;
    let machines = [dear("resize"), dear("grayscale")];
    let hashes = machines.each_ref().map(|machine| {
        let compiled = compiled_on(machine, &pipeline);
        compiled.plan_hash().unwrap()
    });
    assert_ne!(hashes[0], hashes[1]);
    for machine in machines {
        let saved = saved(&machine, &pipeline);
        let pinned = saved.compile(&pipeline.plan, pipeline.clauses.clone());
        let pinned = pinned.unwrap().0;
        assert_eq!(pinned.plan_hash().unwrap(), saved.plan_hash());
        assert_eq!(
            pinned.explain().unwrap().unwrap().report.chosen,
            pinned.report.unwrap().chosen
        );
    }
}

/// A probe with sample rows: half of the rows pass any filter, and a computed value has twice the
/// bytes of a stored image.
#[derive(Debug)]
struct Rows;

impl Probe for Rows {
    fn sample(&self, _occurrence: u32) -> Option<arrow::array::RecordBatch> {
        use arrow::array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray};
        let bytes = vec![7_u8; 5_000];
        let columns: [(&str, ArrayRef); 5] = [
            ("image", Arc::new(BinaryArray::from_vec(vec![&bytes; 8]))),
            ("path", Arc::new(StringArray::from(vec!["a.jpg"; 8]))),
            ("class", Arc::new(StringArray::from(vec!["a"; 8]))),
            ("label", Arc::new(Int32Array::from_iter_values(0..8))),
            (
                forebay_udfs::row::ROW_COLUMN,
                Arc::new(Int32Array::from(vec![0; 8])),
            ),
        ];
        RecordBatch::try_from_iter(columns).ok()
    }

    fn evaluate(
        &self,
        expr: &datafusion::logical_expr::Expr,
        rows: &arrow::array::RecordBatch,
    ) -> Option<Evaluated> {
        use arrow::array::{BinaryArray, BooleanArray};
        use arrow::datatypes::{DataType, Field};
        let count = rows.num_rows();
        if matches!(expr, datafusion::logical_expr::Expr::BinaryExpr(_)) {
            let truth = (0..count).map(|row| Some(row % 2 == 0));
            return Some(Evaluated {
                values: Arc::new(truth.collect::<BooleanArray>()),
                field: Field::new("truth", DataType::Boolean, true),
                failed: Vec::new(),
            });
        }
        let bytes = vec![7_u8; 10_000];
        Some(Evaluated {
            values: Arc::new(BinaryArray::from_vec(vec![&bytes; count])),
            field: Field::new("made", DataType::Binary, true),
            failed: Vec::new(),
        })
    }
}

#[tokio::test]
async fn what_a_few_rows_showed_is_saved_and_found_again() {
    let sql =
        "SELECT random_crop(resize_shortest(decode_image(image), 256), 224, 224) AS x, label FROM photos
               WHERE label > 3 AND label < 90 BATCH 2 REPEAT 9
               OPTIONS (cache_dir = 'c', cache_quota = '1GiB', cache_price = '1 s/GB')";
    let pipeline = planned(sql).await;
    let machine = PlanningContext {
        probe: Some(Arc::new(Rows)),
        cores: 7,
        cache_read: Some(123_456_789),
        ..PlanningContext::default()
    };
    let saved = saved(&machine, &pipeline);
    let basis = &saved.file.chosen_by;
    let seen = basis.statistics.profile.as_ref().unwrap();
    let names: Vec<&str> = seen.stored.keys().map(String::as_str).collect();
    assert_eq!(names, ["0.image", "0.label"]);
    let mut told: Vec<_> = seen.operators.values().collect();
    told.sort_by(|a, b| a.operator.cmp(&b.operator));
    let told = told
        .iter()
        .map(|s| (s.operator.as_str(), s.growth.is_some(), s.kept.is_some()));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("label < 90", false, true),
            ("label > 3", false, true),
            ("x = decode_image(image)", true, false),
            ("x = random_crop(x, 224, 224, #0)", true, false),
            ("x = resize_shortest(x, 256)", true, false),
        ]
    );
    let cache = basis.cache.as_ref().unwrap();
    assert_eq!((basis.epochs, basis.cores), (9, 7));
    assert_eq!(
        (cache.quota, cache.price, cache.read_bps),
        (Some(1 << 30), 1_000, Some(123_456_789))
    );
    let read = SavedPlan::from_json(&saved.to_json().unwrap()).unwrap();
    let (pinned, differs) = read
        .compile(&pipeline.plan, pipeline.clauses.clone())
        .unwrap();
    assert_eq!(differs, None);
    // The costs are estimated from the sizes in the saved plan, although this context has no sample
    // rows.
    let report = pinned.report.as_ref().unwrap();
    let costs = saved.file.costs.unwrap();
    assert_eq!(
        (report.written, report.chosen),
        (costs.written, costs.chosen)
    );
    let mut fewer = pipeline.clauses.clone();
    fewer.repeat.epochs = std::num::NonZeroU64::new(1);
    let (fewer, _) = read.compile(&pipeline.plan, fewer).unwrap();
    assert_eq!(fewer.plan_hash().unwrap(), saved.plan_hash());
}

#[tokio::test]
async fn a_build_side_is_planned_by_what_was_seen_too() {
    let sql = "SELECT t.id, u.name FROM t JOIN u ON t.id = u.id WHERE t.id > 3";
    let pipeline = planned(sql).await;
    let saved = saved(&PlanningContext::default(), &pipeline);
    let scans = &saved.file.chosen_by.statistics.scans;
    assert_eq!(scans.keys().copied().collect::<Vec<_>>(), [0, 1]);
    let again = saved
        .compile(&pipeline.plan, pipeline.clauses.clone())
        .unwrap();
    assert_eq!(again.1, None);
}

#[tokio::test]
async fn another_pipeline_and_another_tier_are_refused() {
    let pipeline = planned(&relaxed("statistical")).await;
    let saved = saved(&PlanningContext::default(), &pipeline);
    let other = planned(&relaxed("statistical").replace("BATCH 2", "BATCH 3")).await;
    let why = refusal(&saved, &other);
    let expected = "the plan was saved for a pipeline with another meaning: line 10 was `batch 2 perrank keep`";
    assert!(why.starts_with(expected), "{why}");
    assert!(why.contains("forebay plan save"), "{why}");
    let exact = planned(&relaxed("none")).await;
    let why = refusal(&saved, &exact);
    let expected =
        "the plan was saved with relax = 'statistical', but the pipeline has relax = 'none'";
    assert!(why.starts_with(expected), "{why}");
}

#[tokio::test]
async fn a_plan_that_does_not_come_out_again_is_refused_above_exact_and_told_at_exact() {
    for (relax, refused) in [("statistical", true), ("none", false)] {
        let pipeline = planned(&relaxed(relax)).await;
        let written = "optimize = 'off', relax";
        let off = planned(&relaxed(relax).replace("relax", written)).await;
        let mut saved = saved(&PlanningContext::default(), &off);
        saved.file.forebay = "0.0.1".to_owned();
        let differs = saved.compile(&pipeline.plan, pipeline.clauses.clone());
        let told = match differs {
            Ok((_, Some(difference))) => {
                assert!(!refused);
                difference.to_string()
            }
            Ok((_, None)) => panic!("the plans differ"),
            Err(error) => {
                assert!(refused);
                error.to_string()
            }
        };
        let reasons = format!(
            "; the plan was saved by forebay 0.0.1, but this is forebay {}; the optimiser was off when the plan was saved",
            env!("CARGO_PKG_VERSION")
        );
        assert!(
            told.contains("line 1 was `Project x = grayscale(resize("),
            "{told}"
        );
        assert!(told.contains(&reasons), "{told}");
    }
    // A rule that the pipeline newly disables leads to another plan, and the message names that
    // rule.
    let pipeline = planned(&relaxed("statistical")).await;
    let without = "gray-into-decode, fuse-images";
    let without = planned(&relaxed("statistical").replace("gray-into-decode", without)).await;
    let why = refusal(&saved(&PlanningContext::default(), &pipeline), &without);
    assert!(
        why.contains(
            "disable_rules was 'gray-into-decode' when the plan was saved, but is 'fuse-images, gray-into-decode' now"
        ),
        "{why}"
    );
}

#[tokio::test]
async fn a_changed_file_is_refused() {
    let pipeline = planned(&relaxed("statistical")).await;
    let saved = saved(&PlanningContext::default(), &pipeline);
    let why = |change: &dyn Fn(&mut Value)| {
        let text = changed(&saved, change);
        SavedPlan::from_json(&text).unwrap_err().to_string()
    };
    let plan_hash = why(&|value| value["plan_hash"] = json!("0".repeat(64)));
    assert!(
        plan_hash.contains("its plan hash does not match its text"),
        "{plan_hash}"
    );
    let meaning = why(&|value| value["meaning"][0] = json!("forebay 99"));
    assert!(
        meaning.contains("its semantic hash does not match its text"),
        "{meaning}"
    );
    let form = why(&|value| *value = json!({"plan_file": 3, "forebay": "9.9\u{1b}[2J"}));
    assert!(
        form.contains("format version 3, written by forebay 9.9\u{fffd}[2J, but forebay"),
        "{form}"
    );
    for (key, odd) in [
        ("epochs", json!(-1)),
        ("epochs", json!(1e300)),
        (
            "seen",
            json!({"scans": {"0": {"format": null, "rows": 1e30, "row_bytes": 0}}, "profile": null}),
        ),
        ("more", json!(1)),
    ] {
        let why = why(&|value| value["chosen_by"][key] = odd.clone());
        assert!(why.starts_with("not a saved plan: "), "{why}");
    }
    let far = json!({"stored": {"0.image": i32::MIN}, "operators": {}});
    let far = why(&|value| value["chosen_by"]["seen"]["profile"] = far.clone());
    assert!(
        far.contains("the size of the column 0.image is out of range"),
        "{far}"
    );
    // A saved plan whose `relax` level was edited is refused, because the pipeline has another
    // level.
    let text = changed(&saved, |value| value["relax"] = json!("exact"));
    let why = refusal(&SavedPlan::from_json(&text).unwrap(), &pipeline);
    assert!(why.contains("saved with relax = 'none'"), "{why}");
}

#[tokio::test]
async fn numbers_of_any_size_are_planned_by() {
    let pipeline = planned(&relaxed("statistical")).await;
    let saved = saved(&PlanningContext::default(), &pipeline);
    let text = changed(&saved, |value| {
        let by = &mut value["chosen_by"];
        for key in ["epochs", "cores"] {
            by[key] = json!(u64::MAX);
        }
        for cost in by["prices"]["functions"]
            .as_object_mut()
            .unwrap()
            .values_mut()
        {
            for cost in cost.as_object_mut().unwrap().values_mut() {
                cost["ps_per_row"] = json!(u64::MAX);
                cost["ps_per_value_in"] = json!(u64::MAX);
            }
        }
        by["seen"]["scans"]["0"]["rows"] = json!(u64::MAX);
        by["seen"]["scans"]["0"]["row_bytes"] = json!(u64::MAX);
        by["cache"] = json!({"quota": u64::MAX, "price": u64::MAX, "at": null, "write_bps": 0, "read_bps": 0});
        by["seen"]["profile"] = json!({"stored": {"0.image": 128 * 1024}, "operators": {}});
    });
    let odd = SavedPlan::from_json(&text).unwrap();
    // With any prices, compiling yields the saved plan or an error.
    match odd.compile(&pipeline.plan, pipeline.clauses.clone()) {
        Ok((compiled, _)) => assert_eq!(compiled.plan_hash().unwrap(), saved.plan_hash()),
        Err(why) => assert!(
            why.to_string()
                .starts_with("planning here gives another plan"),
            "{why}"
        ),
    }
}

#[test]
fn what_is_no_saved_plan_is_refused() {
    let why = |text: &str| SavedPlan::from_json(text).unwrap_err().to_string();
    for text in [
        "",
        "SELECT 1",
        "{}",
        "[]",
        "{\"plan_file\": 2}",
        "{\"plan_file\": 4294967296}",
    ] {
        assert!(why(text).starts_with("not a saved plan: "), "{text}");
    }
    let deep = "[".repeat(100_000);
    assert!(why(&deep).starts_with("not a saved plan: "));
    let long = " ".repeat(MAX_BYTES + 1);
    assert!(why(&long).starts_with("expected a saved plan of at most 4194304 bytes"));
}

#[tokio::test]
async fn a_plan_of_a_cache_elsewhere_is_the_same_plan_without_one() {
    let sql = "SELECT random_crop(normalize(resize_shortest(decode_image(image), 256), 'imagenet'), 224, 224)
                 AS x FROM photos BATCH 8 REPEAT 5";
    let cached = planned(&format!("{sql} OPTIONS (cache_dir = 'c')")).await;
    let saved = saved(&PlanningContext::default(), &cached);
    assert!(saved.file.plan.iter().any(|line| line.trim() == "Cache"));
    for elsewhere in [
        "OPTIONS (cache_dir = 'elsewhere', cache_quota = '1')",
        "CACHE OFF",
        "",
    ] {
        let pipeline = planned(&format!("{sql} {elsewhere}")).await;
        let (_, differs) = saved.compile(&pipeline.plan, pipeline.clauses).unwrap();
        assert_eq!(differs, None, "{elsewhere}");
    }
}

#[tokio::test]
async fn a_saved_plan_reads_well() {
    let pipeline = planned(&relaxed("statistical")).await;
    let mut saved = saved(&PlanningContext::default(), &pipeline);
    saved.file.semantic_hash = "(hash)".to_owned();
    saved.file.plan_hash = "(hash)".to_owned();
    saved.file.pipeline = Some("a\u{1b}[2Jb".to_owned());
    insta::assert_snapshot!(saved.to_string(), @r#"
    Plan of a�[2Jb, chosen by forebay 0.1.0
    semantic hash  (hash)
    plan hash      (hash)
    tier           statistical
    rules off      gray-into-decode
    cost           4.07 min to 4.07 min of one core over 1 epoch, as estimated
    Plan
      Project x = image_program[decode_image > resize 64x64 > grayscale 1](image)
        Scan #0 photos [image]
    Chosen by
      prices   the machine of benches/README.md
      cores    1
      scan #0  unknown, rows: unknown
      profile  none
      cache    none
    "#);
}

#[tokio::test]
async fn what_could_not_be_read_again_is_not_written() {
    let pipeline = planned(&relaxed("none")).await;
    let mut large = saved(&PlanningContext::default(), &pipeline);
    large.file.meaning.push("x".repeat(MAX_BYTES));
    let error = large.to_json().unwrap_err().to_string();
    assert!(error.contains("above 4194304"), "{error}");
}
