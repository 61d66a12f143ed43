//! Tests of MIX: SQL texts and builder calls with the same meaning, plans before and after
//! optimisation, and refusals.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use forebay_udfs::functions;
use insta::assert_snapshot;

use super::canonical::{rows_text, semantic_hash, text};
use super::fingerprint::plan_text;
use super::lower::lower;
use super::membership::{above_mix, arm_scans, is_one_to_one, is_random, membership, multiplies};
use super::mix::MixStop;
use super::{RowOp, RowPlan};
use crate::builder::{PipelineBuilder, call, col, csv, lit, mix, table};
use crate::catalog::Catalog;
use crate::clauses::{CacheClause, Clauses};
use crate::compile::Compiled;
use crate::optimizer::PlanningContext;
use crate::pipeline::Pipeline;
use crate::testing::{TestResolver, planned, run};

async fn lowered(sql: &str) -> RowPlan {
    lower(&planned(sql).await.plan).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn compiled(sql: &str) -> Compiled {
    let pipeline = planned(sql).await;
    let compiled = Compiled::new(&pipeline.plan, pipeline.clauses)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let report = compiled.report.as_ref();
    assert_eq!(report.and_then(|r| r.doubt.clone()), None, "{sql}");
    assert_eq!(compiled.written.schema, compiled.chosen.schema, "{sql}");
    compiled
}

async fn chosen(sql: &str) -> String {
    compiled(sql).await.chosen.to_string()
}

async fn mistake(sql: &str) -> String {
    let mut catalog = Catalog::new(functions(), Arc::new(TestResolver));
    let tables = "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't'";
    run(&mut catalog, tables).await.unwrap();
    run(&mut catalog, sql).await.unwrap_err().to_string()
}

#[tokio::test]
async fn arms_are_tables_functions_and_queries() {
    let sql = "SELECT m.id, name FROM mix (t weight 7, csv('a.csv', header => false) WEIGHT 2,
                 (SELECT upper(name) AS name, id FROM u WHERE id > 3 LIMIT 9) Weight 1, STOP => 'longest') m
               WHERE id < 9";
    assert_snapshot!(lowered(sql).await, @r#"
    Project id, name
      Filter id < 9
        Mix 70%, 20%, 10%, until all have ended
          Scan #0 t [id, name]
          Scan #1 csv('a.csv', header => 'false') [id, name]
          Project id, name
            Limit fetch 9
              Project name = upper(name), id
                Filter id > 3
                  Scan #2 u [id, name]
    "#);
}

#[tokio::test]
async fn a_mix_stands_where_a_table_may() {
    for sql in [
        "SELECT mix.id FROM MIX (t WEIGHT 1, u WEIGHT 1) WHERE mix.id > 1 TAKE 3",
        "SELECT q.id FROM (SELECT id FROM MIX (t WEIGHT 1, u WEIGHT 1)) AS q BATCH 2",
        "WITH a AS (SELECT * FROM t), m AS (SELECT * FROM MIX (a WEIGHT 1, u WEIGHT 1)) SELECT id FROM m",
        "SELECT m.x FROM MIX (t WEIGHT 1) AS m (x, y)",
        "CREATE PIPELINE p AS SELECT id FROM MIX (t WEIGHT 1, u WEIGHT 1) BATCH 2; SELECT id + 1 AS x FROM p",
        "SELECT id, unnest([id, 2]) AS item FROM MIX (t WEIGHT 1, u WEIGHT 1)",
        "SELECT m.id, label FROM MIX (t WEIGHT 1, u WEIGHT 1) AS m JOIN photos ON m.id = label SHUFFLE GLOBALLY",
        "SELECT * FROM MIX ((SELECT id, unnest([id, 2]) AS item FROM t) WEIGHT 1)",
        "SELECT id FROM MIX (\"t\" WEIGHT 1_000.5, `u` WEIGHT 1e3)",
    ] {
        let plan = lowered(sql).await;
        assert!(plan.mix().is_some(), "{plan}");
        chosen(sql).await;
    }
}

#[tokio::test]
async fn mix_and_weight_are_names_elsewhere() {
    for sql in [
        "SELECT mix.id AS mix, mix.name AS weight FROM t AS mix",
        "SELECT weight + 1 AS x FROM (SELECT id weight FROM t) mix WHERE weight > 2",
        "SELECT mix.id FROM t mix JOIN u AS weight ON mix.id = weight.id",
        "WITH mix AS (SELECT id AS weight FROM t) SELECT (weight) FROM mix WHERE abs(weight) IN (1, 2)",
        "WITH mix (weight) AS (SELECT id FROM t) SELECT * FROM mix",
    ] {
        assert!(lowered(sql).await.mix().is_none(), "{sql}");
    }
    let sql = "WITH weight AS (SELECT id weight FROM t), mix AS (SELECT id AS weight FROM u)
               SELECT weight FROM MIX (weight WEIGHT 1, mix WEIGHT 2, (SELECT id weight FROM t) WEIGHT 3) weight";
    assert_eq!(lowered(sql).await.arms().unwrap().len(), 3);
}

#[tokio::test]
async fn columns_are_matched_by_name() {
    let sql =
        "SELECT * FROM MIX ((SELECT CAST(label AS BIGINT) AS label, path FROM photos) WEIGHT 1,
                                  (SELECT name AS path, id AS label FROM t) WEIGHT 1)";
    let plan = lowered(sql).await;
    assert_snapshot!(plan, @r#"
    Project label, path
      Mix 50%, 50%, until the first ends
        Project label = label, path
          Scan #0 photos [image, path, class, label]
        Project label, path
          Project path = name, label = id
            Scan #1 t [id, name]
    "#);
    let types: Vec<&DataType> = plan.schema.fields().iter().map(|f| f.data_type()).collect();
    assert_eq!(types, [&DataType::Int64, &DataType::Utf8]);
    // The columns of a MIX are matched by name even if the MIX has only one arm.
    let sql = "SELECT path, label FROM MIX ((SELECT label, path FROM photos) WEIGHT 1)";
    assert_snapshot!(chosen(sql).await, @r#"
    Mix 100%, until the first ends
      Scan #0 photos [path, label]
    "#);
}

#[tokio::test]
async fn many_arms_take_no_stack() {
    let arms = |count| vec!["t WEIGHT 1"; count].join(", ");
    let sql = format!("SELECT id FROM MIX ({}) WHERE id > 3", arms(255));
    let plan = lowered(&sql).await;
    assert_eq!(plan.mix().unwrap().arms(), 255);
    assert_eq!(compiled(&sql).await.chosen.scans().len(), 255);
    let sql = format!("SELECT id FROM MIX ({}) AS m", arms(256));
    assert_snapshot!(mistake(&sql).await, @"line 1, column 16: MIX of 256 arms; at most 255 are accepted");
    let sql = format!("SELECT id FROM MIX ({}) AS m", arms(50_000));
    assert_snapshot!(mistake(&sql).await, @"line 1, column 6155: expected ), found WEIGHT");
}

#[tokio::test]
async fn no_filter_or_column_goes_below_a_mix() {
    let sql = "SELECT x, id + 1 AS y FROM MIX ((SELECT id * 2 AS x, id, name FROM t) WEIGHT 1,
                                  (SELECT id, id AS x, name FROM u) WEIGHT 1) AS m
               WHERE id > 3 AND x > 4 SHUFFLE GLOBALLY";
    assert_snapshot!(chosen(sql).await, @r#"
    Project x, y = id + 1
      Filter x > 4 AND id > 3
        Mix 50%, 50%, until the first ends
          Project id, x = id * 2
            Scan #0 t [id]
          Project id, x = id
            Scan #1 u [id]
    "#);
    // A filter that all arms have stays in the arms, and is not moved above the MIX.
    let sql = "SELECT id FROM MIX ((SELECT * FROM t WHERE id > 3) WEIGHT 1, (SELECT * FROM u WHERE id > 3) WEIGHT 1)";
    assert_snapshot!(chosen(sql).await, @r#"
    Mix 50%, 50%, until the first ends
      Filter id > 3
        Scan #0 t [id] prune: id > 3
      Filter id > 3
        Scan #1 u [id] prune: id > 3
    "#);
}

#[tokio::test]
async fn a_filter_in_an_arm_goes_below_decoding_in_the_arm() {
    let sql = "SELECT x FROM MIX (
                 (SELECT x FROM (SELECT resize(decode_image(image), 4, 4) AS x, label FROM photos) AS q
                  WHERE label > 3) WEIGHT 0.9,
                 (SELECT resize(decode_image(image), 4, 4) AS x FROM photos) WEIGHT 0.1)";
    assert_snapshot!(chosen(sql).await, @r#"
    Mix 90%, 10%, until the first ends
      Project x = image_program[decode_image > resize 4x4](image)
        Filter label > 3
          Scan #0 photos [image, label] prune: label > 3
      Project x = image_program[decode_image > resize 4x4](image)
        Scan #1 photos [image]
    "#);
}

#[tokio::test]
async fn a_limit_or_a_take_stays_on_its_side_of_a_mix() {
    let sql =
        "SELECT id FROM MIX ((SELECT id FROM t LIMIT 5) WEIGHT 1, (SELECT id FROM u) WEIGHT 1)
               WHERE id > 3 SKIP 1 TAKE 5";
    assert_snapshot!(chosen(sql).await, @r#"
    Filter id > 3
      Mix 50%, 50%, until the first ends
        Limit fetch 5
          Scan #0 t [id]
        Scan #1 u [id]
    "#);
}

#[tokio::test]
async fn rows_are_cached_below_a_mix_or_above_it_as_with_a_union() {
    let cached = async |sql: &str, at: &str| {
        let pipeline = planned(sql).await;
        let mut clauses: Clauses = pipeline.clauses;
        clauses.options.cache_dir = Some("c".into());
        clauses.cache = Some(CacheClause::At {
            step: at.to_owned(),
            freezing: false,
        });
        Compiled::on(&PlanningContext::default(), &pipeline.plan, clauses)
            .map(|c| c.chosen.to_string())
    };
    let sql = "SELECT random_hflip(y) AS y FROM (SELECT hflip(x) AS y FROM MIX (
                 (SELECT resize(to_float(decode_image(image)), 4, 4) AS x FROM photos) WEIGHT 1,
                 (SELECT random_hflip(resize(to_float(decode_image(image)), 4, 4)) AS x FROM photos) WEIGHT 1))";
    assert_snapshot!(cached(sql, "to_float").await.unwrap(), @r#"
    Project y = image_program[hflip > random_hflip 0.5 #1](x)
      Mix 50%, 50%, until the first ends
        Project x = resize(x, 4, 4)
          Cache
            Project x = image_program[decode_image > to_float f32](image)
              Scan #0 photos [image]
        Project x = image_program[decode_image > to_float f32 > resize 4x4 > random_hflip 0.5 #0](image)
          Scan #1 photos [image]
    "#);
    assert_snapshot!(cached(sql, "hflip").await.unwrap_err().to_string(), @"Error during planning: CACHE AT hflip: it would freeze the draws of x = random_hflip(x, #0); cache at an earlier step, or, to keep the draws of the first epoch for all epochs, write CACHE AT hflip FREEZING RANDOMNESS");
    let sql = "SELECT random_hflip(y) AS y FROM (SELECT hflip(x) AS y FROM MIX (
                 (SELECT resize(decode_image(image), 4, 4) AS x FROM photos) WEIGHT 1,
                 (SELECT resize(decode_image(image), 4, 4) AS x FROM photos) WEIGHT 1, stop => 'longest'))";
    assert_snapshot!(cached(sql, "hflip").await.unwrap(), @r#"
    Project y = random_hflip(y, #0)
      Cache
        Project y = hflip(x)
          Mix 50%, 50%, until all have ended
            Project x = image_program[decode_image > resize 4x4](image)
              Scan #0 photos [image]
            Project x = image_program[decode_image > resize 4x4](image)
              Scan #1 photos [image]
    "#);
}

#[tokio::test]
async fn weights_stop_and_arms_are_the_meaning_of_a_mix() {
    let hash = async |sql: &str| {
        let pipeline = planned(sql).await;
        let plan = lower(&pipeline.plan).unwrap();
        let rows = rows_text(&plan).unwrap();
        (
            semantic_hash(&plan, &pipeline.clauses).unwrap(),
            rows,
            plan_text(&plan).unwrap(),
        )
    };
    let base = hash("SELECT id FROM MIX (t WEIGHT 0.7, u WEIGHT 0.3)").await;
    for sql in [
        "SELECT id FROM MIX (t WEIGHT 7, u WEIGHT 3)",
        "SELECT m.id FROM mix ((SELECT * FROM t) weight 70, u WEIGHT 30.0, Stop => 'FIRST') AS m",
        "SELECT id FROM MIX (parquet('elsewhere') WEIGHT 7, csv('other') WEIGHT 3)",
    ] {
        assert_eq!(hash(sql).await.0, base.0, "{sql}");
    }
    for sql in [
        "SELECT id FROM MIX (t WEIGHT 0.8, u WEIGHT 0.2)",
        "SELECT id FROM MIX (t WEIGHT 0.3, u WEIGHT 0.7)",
        "SELECT id FROM MIX (t WEIGHT 0.7, u WEIGHT 0.3, stop => 'longest')",
        "SELECT id FROM MIX (t WEIGHT 0.7, (SELECT id + 1 AS id, name FROM u) WEIGHT 0.3)",
        "SELECT id FROM MIX ((SELECT id + 1 AS id, name FROM t) WEIGHT 0.7, u WEIGHT 0.3)",
        "SELECT id FROM MIX (t WEIGHT 0.7, (SELECT * FROM u WHERE id > 1) WEIGHT 0.3)",
        "SELECT id FROM MIX (t WEIGHT 0.7, u WEIGHT 0.3) WHERE id > 1",
        "SELECT id FROM (SELECT * FROM t UNION ALL SELECT * FROM u)",
        "SELECT id FROM t",
    ] {
        let other = hash(sql).await;
        assert_ne!(other.0, base.0, "{sql}");
        assert_ne!(other.1, base.1, "{sql}");
        assert_ne!(other.2, base.2, "{sql}");
    }
}

#[tokio::test]
async fn the_texts_of_a_mix_hold_its_weights() {
    let sql = "SELECT id FROM MIX (t WEIGHT 0.7, u WEIGHT 0.3)";
    let pipeline = planned(sql).await;
    let plan = lower(&pipeline.plan).unwrap();
    assert_snapshot!(text(&plan, &pipeline.clauses).unwrap(), @r##"
    forebay 5
    mix [3006477107, 1288490189] first
      scan 0
      "id" Int64 = "0.id:Int64"
      "name" Utf8 = "0.name:Utf8"
      scan 1
      "id" Int64 = "1.id:Int64"
      "name" Utf8 = "1.name:Utf8"
    "id" Int64 = "#0"
    shuffle none
    skip 0
    take all
    batch none
    continuous false
    on_error fail
    relax exact
    "##);
    assert_snapshot!(plan_text(&compiled(sql).await.chosen).unwrap(), @r#"
    forebay plan 1
    mix [3006477107, 1288490189] first
    column "id": Int64 or null
      scan 0 [0]
      column "id": Int64
      scan 1 [0]
      column "id": Int64
    "#);
}

#[tokio::test]
async fn calls_mean_what_texts_do() {
    let mut catalog = Catalog::new(functions(), Arc::new(TestResolver));
    let tables = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'p';
                  CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't';
                  CREATE PIPELINE u AS SELECT name, id FROM csv('u') WHERE id > 7 BATCH 3";
    run(&mut catalog, tables).await.unwrap();
    let same = async |builder: PipelineBuilder, sql: &str| {
        let built = builder
            .build(&catalog)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut other = Catalog::new(functions(), Arc::new(TestResolver));
        run(&mut other, tables).await.unwrap();
        let parsed = run(&mut other, sql).await.unwrap().unwrap();
        let hash = |of: &Pipeline| semantic_hash(&lower(&of.plan).unwrap(), &of.clauses).unwrap();
        assert_eq!(hash(&built), hash(&parsed), "{sql}");
        assert_eq!(
            built.plan.display_indent_schema().to_string(),
            parsed.plan.display_indent_schema().to_string(),
            "{sql}"
        );
    };
    same(
        Pipeline::from(mix([("t".into(), 0.7), (table("u"), 0.3)])),
        "SELECT * FROM MIX (t WEIGHT 7, u WEIGHT 3)",
    )
    .await;
    let arm = Pipeline::from(table("photos"))
        .filter(col("label").gt(lit(3)))
        .with_column("id", col("label") * lit(2))
        .select([col("id"), col("path").alias("name")]);
    same(
        Pipeline::from(
            mix([
                ("t".to_owned().into(), 1.0),
                (arm.into(), 2.0),
                (csv("a").unwrap().into(), 1.0),
            ])
            .stop(MixStop::Longest),
        )
        .filter(col("id").gt(lit(1)))
        .with_column("x", call("random_uniform", []))
        .batch(4),
        "SELECT *, random_uniform() AS x FROM MIX (t WEIGHT 1,
           (SELECT label * 2 AS id, path AS name FROM photos WHERE label > 3) WEIGHT 2,
           csv('a') WEIGHT 1, stop => 'longest') WHERE id > 1 BATCH 4",
    )
    .await;
}

#[tokio::test]
async fn calls_can_be_wrong() {
    let mut catalog = Catalog::new(functions(), Arc::new(TestResolver));
    let tables = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'p';
                  CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't'";
    run(&mut catalog, tables).await.unwrap();
    let mistake =
        async |builder: PipelineBuilder| builder.build(&catalog).await.unwrap_err().to_string();
    let of = |input| Pipeline::from(mix([("t".into(), 1.0), (input, 1.0)]));
    assert_snapshot!(mistake(Pipeline::from(mix([]))).await, @"MIX expects at least one arm");
    assert_snapshot!(mistake(Pipeline::from(mix([("t".into(), -1.0)]))).await, @"WEIGHT expects a number above 0, found -1");
    assert_snapshot!(mistake(of("v".into())).await, @r#"unknown table "v"; did you mean "t"?"#);
    assert_snapshot!(mistake(of("photos".into())).await, @r#"MIX: "photos" has no column "id", which "t" has; all arms of a MIX need the same columns; choose them with (SELECT ..)"#);
    assert_snapshot!(mistake(of(mix([("t".into(), 1.0)]).into())).await, @"a MIX inside a MIX is not supported yet");
    assert_snapshot!(mistake(of(Pipeline::from(mix([("t".into(), 1.0)])).into())).await, @"a MIX inside a MIX is not supported yet");
    assert_snapshot!(mistake(of(Pipeline::from(table("t")).take(3).into())).await, @"an arm of a mix must be a pipeline without clauses, which only filters and computes columns; shuffle, take, batch and set options on the pipeline that reads the mix");
    assert_snapshot!(mistake(Pipeline::from(Pipeline::from(table("t")))).await, @"a pipeline can read another pipeline only by its registered name, or as an arm of a mix");
    let random = Pipeline::from(table("t")).filter(call("random_bool", []));
    assert_snapshot!(mistake(of(random.into())).await, @"a random filter inside a MIX, in arm 2, is not supported yet; filter the rows of the MIX instead");
}

#[tokio::test]
async fn a_random_filter_in_an_arm_is_refused() {
    let refused = [
        "SELECT id FROM MIX ((SELECT * FROM t WHERE random_bool()) WEIGHT 1)",
        "SELECT id FROM MIX (t WEIGHT 1,
           (SELECT id, name FROM (SELECT *, random_uniform() AS r FROM t) WHERE r < 0.5) WEIGHT 1)",
    ];
    assert_snapshot!(mistake(refused[0]).await, @"line 1, column 16: a random filter inside a MIX, in arm 1, is not supported yet; filter the rows of the MIX instead");
    assert_snapshot!(mistake(refused[1]).await, @"line 1, column 16: a random filter inside a MIX, in arm 2, is not supported yet; filter the rows of the MIX instead");
    for sql in [
        "SELECT id FROM MIX (t WEIGHT 1) WHERE random_bool()",
        "SELECT r FROM MIX ((SELECT random_uniform() AS r FROM t WHERE id > 3) WEIGHT 1) WHERE r > 0.5",
    ] {
        chosen(sql).await;
    }
}

#[tokio::test]
async fn membership_is_told_arm_by_arm() {
    let sql = "SELECT m.id, label FROM MIX (
                 (SELECT id, name, id + 1 AS x FROM t WHERE id > 3 LIMIT 9) WEIGHT 1,
                 (SELECT u.id, u.name, CAST(label AS BIGINT) AS x FROM u JOIN photos ON u.id = label) WEIGHT 1,
                 (SELECT id, name, id AS x FROM t UNION ALL SELECT id, name, 2 FROM u) WEIGHT 2) AS m
               LEFT JOIN photos ON m.id = label WHERE name > 'a'";
    let plan = lowered(sql).await;
    let sets = |of: &[&[u32]]| -> Vec<BTreeSet<u32>> {
        of.iter().map(|set| set.iter().copied().collect()).collect()
    };
    assert_eq!(arm_scans(&plan), sets(&[&[0], &[1], &[3, 4]]));
    let arms = membership(plan.mixed().unwrap().clone()).unwrap();
    assert_snapshot!(arms, @r#"
    Mix 25%, 25%, 50%, until the first ends
      Limit fetch 9
        Project 
          Filter id > 3
            Scan #0 t [id]
      Project 
        Lookup id = label
          Scan #1 u [id]
          Scan #2 photos [label]
      Union
        Project 
          Scan #3 t []
        Project 
          Scan #4 u []
    "#);
    let above = above_mix(plan.clone()).unwrap();
    assert_snapshot!(above, @r#"
    Project 
      Filter name > 'a'
        Lookup left id = label
          Mix 25%, 25%, 50%, until the first ends
            Project id, name
              Scan #0 t [id, name]
            Project id, name
              Lookup left id = label
                Scan #1 u [id, name]
                Scan #2 photos [label]
            Union
              Project id, name
                Scan #3 t [id, name]
              Project id, name
                Scan #4 u [id, name]
          Scan #5 photos [label]
    "#);
    assert!(!is_one_to_one(&plan) && !multiplies(&plan) && !is_random(&plan));
    // The rows that an arm drops do not matter for the membership plan above the MIX.
    let sql = "SELECT id FROM MIX ((SELECT id FROM t WHERE id > 3) WEIGHT 1, (SELECT id FROM u) WEIGHT 1)";
    let plan = lowered(sql).await;
    assert!(!is_one_to_one(&plan) && is_one_to_one(&above_mix(plan).unwrap()));
    let plan = lowered("SELECT id FROM MIX (t WEIGHT 1, u WEIGHT 1)").await;
    assert!(is_one_to_one(&plan));
    let plan = lowered("SELECT id FROM t WHERE id > 3").await;
    assert!(arm_scans(&plan).is_empty());
    assert!(matches!(
        above_mix(plan).unwrap().op,
        RowOp::Project { .. } | RowOp::Filter { .. }
    ));
}
