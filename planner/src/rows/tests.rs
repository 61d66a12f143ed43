//! Tests of the final rewrites of row plans, with cases that a rewrite changes and cases that a
//! rewrite must not change. Also tests of hashes.

use std::sync::Arc;

use insta::assert_snapshot;

use super::canonical::{rows_text, semantic_hash, text};
use super::fingerprint::plan_text;
use super::lower::lower;
use crate::compile::Compiled;
use crate::testing::planned;

async fn written(sql: &str) -> String {
    lower(&planned(sql).await.plan).unwrap().to_string()
}

async fn chosen(sql: &str) -> String {
    let pipeline = planned(sql).await;
    let plan = lower(&pipeline.plan).unwrap();
    let schema = Arc::clone(&plan.schema);
    let compiled = Compiled::new(&pipeline.plan, pipeline.clauses).unwrap();
    assert_eq!(compiled.report.and_then(|r| r.doubt), None);
    let optimized = compiled.chosen;
    // The final rewrites change neither names, types nor tensor shapes of columns.
    for (before, after) in schema.fields().iter().zip(optimized.schema.fields()) {
        assert_eq!(
            (before.name(), before.data_type()),
            (after.name(), after.data_type())
        );
        assert_eq!(before.metadata(), after.metadata());
    }
    assert_eq!(schema.fields().len(), optimized.schema.fields().len());
    optimized.to_string()
}

#[tokio::test]
async fn streams_are_numbered_in_evaluation_order() {
    let sql = "SELECT random_uniform() AS b, random_hflip(random_vflip(x)) AS c FROM
                 (SELECT resize(decode_image(image), 4, 4) AS x FROM photos WHERE random_bool()) AS q";
    assert_snapshot!(written(sql).await, @r#"
    Project b = random_uniform(#1), c = random_hflip(random_vflip(x, #2), #3)
      Project x = resize(decode_image(image), 4, 4)
        Filter random_bool(#0)
          Scan #0 photos [image, path, class, label]
    "#);
}

#[tokio::test]
async fn a_named_stream_is_shared_and_others_keep_their_numbers() {
    let sql = "SELECT random_hflip(resize(decode_image(image), 4, 4), 0.5, stream => 'flip') AS a,
                 random_hflip(resize(decode_image(image), 4, 4), 0.5, stream => 'flip') AS b,
                 random_uniform() AS c FROM photos";
    assert_snapshot!(written(sql).await, @r#"
    Project a = random_hflip(resize(decode_image(image), 4, 4), 0.5, #10228132597813776651), b = random_hflip(resize(decode_image(image), 4, 4), 0.5, #10228132597813776651), c = random_uniform(#2)
      Scan #0 photos [image, path, class, label]
    "#);
}

#[tokio::test]
async fn projections_merge() {
    let sql = "SELECT id + 1 AS b FROM (SELECT id * 2 AS id, name FROM t) AS q";
    assert_snapshot!(chosen(sql).await, @r#"
    Project b = id * 2 + 1
      Scan #0 t [id]
    "#);
}

#[tokio::test]
async fn projections_that_would_compute_twice_stay_apart() {
    let sql = "SELECT id + id AS b FROM (SELECT id * 2 AS id FROM t) AS q";
    assert_snapshot!(chosen(sql).await, @r#"
    Project b = id'2 + id'2
      Project id'2 = id * 2
        Scan #0 t [id]
    "#);
}

#[tokio::test]
async fn a_filter_goes_below_a_projection_and_into_the_scan() {
    let sql =
        "SELECT pixels FROM (SELECT resize(decode_image(image), 4, 4) AS pixels, label FROM photos)
               AS q WHERE label > 3";
    assert_snapshot!(chosen(sql).await, @r#"
    Project pixels = image_program[decode_image > resize 4x4](image)
      Filter label > 3
        Scan #0 photos [image, label] prune: label > 3
    "#);
}

#[tokio::test]
async fn a_filter_on_a_computed_column_stays_above_it() {
    let sql = "SELECT name FROM (SELECT id * 2 AS twice, name FROM t) AS q WHERE twice > 3";
    assert_snapshot!(chosen(sql).await, @r#"
    Project name
      Filter twice > 3
        Project name, twice = id * 2
          Scan #0 t [id, name]
    "#);
}

#[tokio::test]
async fn a_filter_goes_into_every_arm_of_a_union() {
    let sql = "SELECT * FROM (SELECT id FROM t UNION ALL SELECT id + 1 FROM u) AS q WHERE id > 3";
    assert_snapshot!(chosen(sql).await, @r#"
    Union
      Filter id > 3
        Scan #0 t [id] prune: id > 3
      Filter id > 3
        Project id = id + 1
          Scan #1 u [id]
    "#);
}

#[tokio::test]
async fn a_filter_stays_above_a_limit() {
    let sql = "SELECT id FROM (SELECT id FROM t LIMIT 5) AS q WHERE id > 3";
    assert_snapshot!(chosen(sql).await, @r#"
    Filter id > 3
      Limit fetch 5
        Scan #0 t [id]
    "#);
}

#[tokio::test]
async fn a_filter_on_the_probe_side_goes_below_a_lookup_and_others_stay() {
    let sql = "SELECT t.id, u.name FROM t JOIN u ON t.id = u.id WHERE t.id > 3 AND u.name = 'x'";
    assert_snapshot!(chosen(sql).await, @r#"
    Project id, name = u.name
      Filter u.name = 'x'
        Lookup id = id
          Filter id > 3
            Scan #0 t [id] prune: id > 3
          Scan #1 u [id, name]
    "#);
}

#[tokio::test]
async fn a_filter_on_stored_columns_goes_below_unnest() {
    let sql = "SELECT * FROM (SELECT id, unnest([id, 2]) AS item FROM t) AS q WHERE id > 3";
    assert_snapshot!(chosen(sql).await, @r#"
    Project id, item = element
      Unnest columns 1
        Project id, list = make_array(id, 2)
          Filter id > 3
            Scan #0 t [id] prune: id > 3
    "#);
}

#[tokio::test]
async fn a_random_filter_and_one_on_items_stay_above_unnest() {
    let sql = "SELECT * FROM (SELECT id, unnest([id, 2]) AS item FROM t) AS q
               WHERE random_bool() AND item > 3";
    assert_snapshot!(chosen(sql).await, @r#"
    Project id, item = element
      Filter element > 3 AND random_bool(#0)
        Unnest columns 1
          Project id, list = make_array(id, 2)
            Scan #0 t [id]
    "#);
}

#[tokio::test]
async fn a_predicate_on_an_image_header_prunes_no_stored_rows() {
    let sql = "SELECT label FROM photos WHERE image_width(image) > 300 AND label = 1";
    assert_snapshot!(chosen(sql).await, @r#"
    Project label
      Filter label = 1 AND image_width(image) > 300
        Scan #0 photos [image, label] prune: label = 1
    "#);
}

#[tokio::test]
async fn nested_image_calls_fuse_and_a_shared_image_does_not() {
    let nested = "SELECT to_chw(hflip(decode_image(image))) AS x FROM photos";
    assert_snapshot!(chosen(nested).await, @r#"
    Project x = image_program[decode_image > hflip > to_chw](image)
      Scan #0 photos [image]
    "#);
    let shared = "SELECT hflip(x) AS a, vflip(x) AS b FROM
                    (SELECT decode_image(image) AS x FROM photos) AS q";
    assert_snapshot!(chosen(shared).await, @r#"
    Project a = hflip(x), b = vflip(x)
      Project x = decode_image(image)
        Scan #0 photos [image]
    "#);
}

#[tokio::test]
async fn texts_that_mean_the_same_hash_the_same() {
    let hash = async |sql: &str| {
        let pipeline = planned(sql).await;
        semantic_hash(&lower(&pipeline.plan).unwrap(), &pipeline.clauses).unwrap()
    };
    let base =
        hash("SELECT id + 1 AS a FROM t WHERE id > 3 AND name = 'x' SHUFFLE GLOBALLY BATCH 4")
            .await;
    let same = [
        "SELECT q.a FROM (SELECT id + 1 AS a, name AS n, id FROM t) AS q WHERE n = 'x' AND id > 3
         SHUFFLE GLOBALLY SEED 9 BATCH 4 PER RANK REPEAT 7",
        "SELECT id + 1 AS a FROM parquet('elsewhere') WHERE name = 'x' AND id > 3 SHUFFLE GLOBALLY BATCH 4
         OPTIONS (on_error = 'fail', optimize = 'off')",
    ];
    for sql in same {
        assert_eq!(hash(sql).await, base, "{sql}");
    }
    let other = [
        "SELECT id + 2 AS a FROM t WHERE id > 3 AND name = 'x' SHUFFLE GLOBALLY BATCH 4",
        "SELECT id + 1 AS b FROM t WHERE id > 3 AND name = 'x' SHUFFLE GLOBALLY BATCH 4",
        "SELECT id + 1 AS a FROM t WHERE id > 3 AND name = 'x' SHUFFLE WITHIN 9 ROWS BATCH 4",
        "SELECT id + 1 AS a FROM t WHERE id > 3 AND name = 'x' SHUFFLE GLOBALLY BATCH 4 GLOBAL",
        "SELECT id + 1 AS a FROM t WHERE id > 3 AND name = 'x' SHUFFLE GLOBALLY BATCH 4
         OPTIONS (on_error = 'skip')",
        "SELECT id + 1 AS a FROM t WHERE id > 3 SHUFFLE GLOBALLY BATCH 4",
    ];
    for sql in other {
        assert_ne!(hash(sql).await, base, "{sql}");
    }
}

/// Pairs of different queries whose display texts in DataFusion or EXPLAIN are the same.
const TWINS: [[&str; 2]; 4] = [
    [
        "SELECT id FROM t WHERE (name = 'x') IS NULL",
        "SELECT id FROM t WHERE name = CAST('x' IS NULL AS TEXT)",
    ],
    [
        "SELECT id FROM t WHERE CAST(id AS SMALLINT) > 3",
        "SELECT id FROM t WHERE CAST(id AS INT) > 3",
    ],
    [
        "SELECT normalize(to_float(decode_image(image)), [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]) AS x FROM photos",
        "SELECT normalize(to_float(decode_image(image)), [0.4, 0.5, 0.5], [0.5, 0.5, 0.5]) AS x FROM photos",
    ],
    [
        "SELECT crop(decode_image(image), 0, 0, 8, 8) AS x FROM photos",
        "SELECT crop(decode_image(image), 4, 4, 8, 8) AS x FROM photos",
    ],
];

#[tokio::test]
async fn plans_that_differ_in_what_explain_hides_have_hashes_of_their_own() {
    let compiled = async |sql: &str| {
        let pipeline = planned(sql).await;
        Compiled::new(&pipeline.plan, pipeline.clauses).unwrap()
    };
    for [a, b] in TWINS {
        let (a, b) = (compiled(a).await, compiled(b).await);
        assert_ne!(a.semantic_hash, b.semantic_hash, "{}", a.written);
        assert_ne!(
            a.plan_hash().unwrap(),
            b.plan_hash().unwrap(),
            "{}",
            a.chosen
        );
        // The cache must not return rows of one query for the other query, so the row texts of the
        // two queries must differ.
        let kept = |of: &Compiled| rows_text(&of.chosen).unwrap().0;
        assert_ne!(kept(&a), kept(&b), "{}", a.chosen);
        if !a.written.to_string().contains("IS NULL") {
            assert_eq!(a.chosen.to_string(), b.chosen.to_string());
        }
    }
}

#[tokio::test]
async fn a_plan_hash_names_the_plan_and_not_the_place_of_its_data() {
    let hash = async |sql: &str| {
        let pipeline = planned(sql).await;
        let compiled = Compiled::new(&pipeline.plan, pipeline.clauses).unwrap();
        compiled.plan_hash().unwrap()
    };
    let base = hash("SELECT id FROM t WHERE id > 3").await;
    assert_eq!(
        base,
        hash("SELECT id FROM parquet('elsewhere') WHERE id > 3").await
    );
    let unpruned = "SELECT id FROM t WHERE id > 3 OPTIONS (disable_rules = 'filter-into-scan')";
    assert_ne!(base, hash(unpruned).await);
    // The order of a union's inputs is part of the plan, so another order has another plan hash.
    let arms = [
        "SELECT id FROM t UNION ALL SELECT id + 1 FROM u",
        "SELECT id + 1 AS id FROM t UNION ALL SELECT id FROM u",
    ];
    assert_ne!(hash(arms[0]).await, hash(arms[1]).await);
}

#[tokio::test]
async fn the_definition_of_a_plan_holds_all_of_it() {
    let sql = "SELECT normalize(resize(decode_image(image), 4, 4), 'imagenet') AS x FROM photos
               WHERE CAST(label AS BIGINT) > 3";
    let pipeline = planned(sql).await;
    let compiled = Compiled::new(&pipeline.plan, pipeline.clauses).unwrap();
    assert_snapshot!(plan_text(&compiled.chosen).unwrap(), @r#"
    forebay plan 1
    project
    "x" = image_program[Stage { op: Decode(Rgb), stream: None }, Stage { op: Resize { size: (4, 4), filter: Bilinear }, stream: None }, Stage { op: Normalize { mean: [Real(0.485), Real(0.456), Real(0.406)], std: [Real(0.229), Real(0.224), Real(0.225)] }, stream: None }]("image")
    column "x": FixedSizeList(48 x non-null Float32) {"ARROW:extension:metadata": "{\"dim_names\":[\"H\",\"W\",\"C\"],\"shape\":[4,4,3]}", "ARROW:extension:name": "arrow.fixed_shape_tensor"} or null
      filter
      where (cast("label" as Int64) > [Int64 3])
      column "image": Binary
      column "label": Int32
        scan 0 [0, 3]
        prune (cast("label" as Int64) > [Int64 3])
        column "image": Binary
        column "label": Int32
    function decode_image 2
    function normalize 1
    function resize 1
    "#);
}

#[tokio::test]
async fn the_canonical_text_names_functions_with_their_versions() {
    let pipeline =
        planned("SELECT random_hflip(resize(decode_image(image), 4, 4)) AS x FROM photos").await;
    let plan = lower(&pipeline.plan).unwrap();
    assert_snapshot!(text(&plan, &pipeline.clauses).unwrap(), @r#"
    forebay 5
    scan 0
    "x" FixedSizeList(48 x non-null UInt8) {"ARROW:extension:metadata": "{\"dim_names\":[\"H\",\"W\",\"C\"],\"shape\":[4,4,3]}", "ARROW:extension:name": "arrow.fixed_shape_tensor"} = random_hflip(resize(decode_image("0.image:Binary"), [Int64 4], [Int64 4]), [UInt64 0], __row)
    function decode_image 2
    function random_hflip 1
    function resize 1
    shuffle none
    skip 0
    take all
    batch none
    continuous false
    on_error fail
    relax exact
    "#);
}

#[tokio::test]
async fn the_canonical_text_of_an_unnest_has_no_made_up_names() {
    let pipeline = planned("SELECT id, unnest([id, 2]) AS item FROM t").await;
    let plan = lower(&pipeline.plan).unwrap();
    assert_snapshot!(text(&plan, &pipeline.clauses).unwrap(), @r##"
    forebay 5
    unnest [0, 1] {1} false
      scan 0
      "id" Int64 = "0.id:Int64"
      "list" List(Int64) = make_array("0.id:Int64", [Int64 2])
      function make_array 1
    "id" Int64 = "#0"
    "item" Int64 = "#1"
    shuffle none
    skip 0
    take all
    batch none
    continuous false
    on_error fail
    relax exact
    "##);
}
