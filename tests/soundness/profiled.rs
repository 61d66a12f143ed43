//! Profiles: if an expression need not be evaluated for a profile, leaving it out must not change
//! the profile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::logical_expr::Expr;
use forebay_planner::catalog::Catalog;
use forebay_planner::compile::Compiled;
use forebay_planner::optimizer::PlanningContext;
use forebay_planner::optimizer::profile::{Evaluated, Probe};
use forebay_planner::optimizer::statistics::RowStats;
use forebay_runtime::run::Sample;

use crate::check::planned;
use crate::data;

/// A sample that records which expressions are evaluated.
#[derive(Debug)]
struct Watched {
    sample: Sample,
    /// True to report the types of expressions, so that expressions of a fixed-size type need not
    /// be evaluated.
    has_types: bool,
    evaluated: Mutex<Vec<String>>,
}

impl Probe for Watched {
    fn sample(&self, occurrence: u32) -> Option<RecordBatch> {
        self.sample.sample(occurrence)
    }

    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated> {
        self.evaluated.lock().unwrap().push(expr.to_string());
        self.sample.evaluate(expr, rows)
    }

    fn field(&self, expr: &Expr, schema: &SchemaRef) -> Option<Field> {
        self.has_types.then(|| self.sample.field(expr, schema))?
    }
}

/// Returns the profile of a query, and the expressions that were evaluated to compute the profile.
async fn seen(catalog: &Catalog, sql: &str, has_types: bool) -> (RowStats, String) {
    let (pipeline, written) = planned(catalog, sql).await.unwrap();
    let probe = Arc::new(Watched {
        sample: Sample::of(&written.written).await,
        has_types,
        evaluated: Mutex::default(),
    });
    let machine = PlanningContext {
        probe: Some(Arc::clone(&probe) as Arc<dyn Probe>),
        ..PlanningContext::default()
    };
    let compiled = Compiled::on(&machine, &pipeline.plan, pipeline.clauses).unwrap();
    let seen = compiled.report.unwrap().statistics.profile.unwrap();
    let evaluated = probe.evaluated.lock().unwrap().join("\n");
    (seen, evaluated)
}

/// Returns the profile of each operator that changes the size or the number of rows, and the
/// expressions that were evaluated to compute the profile.
async fn profile(catalog: &Catalog, sql: &str, has_types: bool) -> (BTreeMap<String, i32>, String) {
    let (seen, evaluated) = seen(catalog, sql, has_types).await;
    let told = seen.operators.into_values();
    let told = told.filter_map(|seen| Some((seen.operator, seen.kept.or(seen.growth)?)));
    (told.collect(), evaluated)
}

#[tokio::test]
async fn a_filter_by_size_profiles_the_sizes_it_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = data::catalog(dir.path()).await;
    for (condition, larger) in [("> 300", true), ("<= 660", false)] {
        let sql = format!(
            "SELECT decode_image(image) AS x FROM clean WHERE octet_length(image) {condition}"
        );
        let (seen, _) = seen(&catalog, &sql, true).await;
        let mut filters = seen.operators.values().filter(|seen| seen.kept.is_some());
        let narrowed = filters.next().unwrap().narrowed["0.image"];
        assert_eq!(narrowed > 0, larger, "{condition} {narrowed}");
        assert_ne!(narrowed, 0);
    }
}

#[tokio::test]
async fn a_profile_decodes_no_photo_unless_its_pixels_matter() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = data::catalog(dir.path()).await;
    let fixed =
        "SELECT x FROM (SELECT image, normalize(resize(decode_image(image), 8, 8), 'imagenet') AS x
                 FROM clean) AS q WHERE image_width(image) > 12";
    let (told, evaluated) = profile(&catalog, fixed, true).await;
    assert!(evaluated.contains("image_height"), "{evaluated}");
    assert!(!evaluated.contains("decode_image"), "{evaluated}");
    let (all, evaluated) = profile(&catalog, fixed, false).await;
    assert!(evaluated.contains("normalize"), "{evaluated}");
    for (operator, expected) in &all {
        // If types are reported, the profile has no entries for expressions of a fixed-size type.
        match told.get(operator) {
            Some(found) => assert!(
                (found - expected).abs() < 8,
                "{operator}: {found} {expected}"
            ),
            None => assert!(!operator.contains("decode_image"), "{operator}"),
        }
    }
    assert!(told.keys().any(|operator| operator.contains("image_width")));

    let varying = "SELECT resize_shortest(decode_image(image), 8) AS x FROM clean";
    let (told, evaluated) = profile(&catalog, varying, true).await;
    assert!(evaluated.contains("decode_image"), "{evaluated}");
    let (all, _) = profile(&catalog, varying, false).await;
    let of = |told: &BTreeMap<String, i32>| told["x = resize_shortest(x, 8)"];
    assert_eq!(of(&told), of(&all));
}
