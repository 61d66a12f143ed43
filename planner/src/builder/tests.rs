//! Tests that builder calls plan the same pipeline as equivalent SQL, and tests of error messages.

use super::*;
use crate::catalog::Existing;
use crate::clauses::{self, OnError, Optimize, Relax};
use crate::pipeline::Pipeline;
use crate::testing::{filled, run};

/// Asserts that `builder` and the equivalent `sql` have equal plans, schemas and clauses.
async fn same(builder: PipelineBuilder, sql: &str) {
    let mut catalog = filled().await;
    let views = "CREATE PIPELINE view AS SELECT label FROM photos BATCH 2";
    run(&mut catalog, views).await.unwrap();
    let built = builder
        .build(&catalog)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let parsed = run(&mut catalog, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
        .expect("a query");
    assert_eq!(
        built.plan.display_indent_schema().to_string(),
        parsed.plan.display_indent_schema().to_string(),
        "{sql}"
    );
    assert_eq!(built.clauses, parsed.clauses, "{sql}");
}

async fn mistake(builder: PipelineBuilder) -> String {
    builder
        .build(&filled().await)
        .await
        .expect_err("a mistake")
        .to_string()
}

fn photos() -> PipelineBuilder {
    Pipeline::from(table("photos"))
}

#[tokio::test]
async fn sources() {
    same(photos(), "SELECT * FROM photos").await;
    same(Pipeline::from(table("view")), "SELECT * FROM view").await;
    same(
        Pipeline::from(images("dir").unwrap()),
        "SELECT * FROM images('dir')",
    )
    .await;
    same(
        Pipeline::from(
            csv("a.csv")
                .unwrap()
                .option("Delimiter", ";")
                .option("header", false),
        ),
        "SELECT * FROM csv('a.csv', header => false, delimiter => ';')",
    )
    .await;
    same(
        Pipeline::from(parquet("x/*.parquet").unwrap()),
        "SELECT * FROM parquet('x/*.parquet')",
    )
    .await;
}

#[tokio::test]
async fn filters_and_columns() {
    same(
        photos()
            .filter(col("label").gt(lit(2)))
            .select([col("label")]),
        "SELECT label FROM photos WHERE label > 2",
    )
    .await;
    same(
        photos().with_column("twice", col("label") * lit(2)),
        "SELECT *, label * 2 AS twice FROM photos",
    )
    .await;
    same(
        photos().with_column("label", col("label") + lit(1)),
        "SELECT image, path, class, label + 1 AS label FROM photos",
    )
    .await;
    same(
        photos().select([col("label"), (col("label") + lit(0.5)).alias("x")]),
        "SELECT label, label + 0.5 AS x FROM photos",
    )
    .await;
    same(
        photos()
            .with_column("x", col("label") + lit(1))
            .filter(col("x").gt(lit(2))),
        "SELECT * FROM (SELECT *, label + 1 AS x FROM photos) WHERE x > 2",
    )
    .await;
}

#[tokio::test]
async fn pinned_calls() {
    let decoded = call("decode_image", [col("image")]).pinned();
    same(
        photos()
            .filter(col("label").gt(lit(2)).pinned())
            .with_column("x", decoded)
            .with_column("x", call("resize", [col("x"), lit(8), lit(8)]))
            .select([col("x")]),
        "SELECT resize(PINNED decode_image(image), 8, 8) AS x FROM photos
         WHERE PINNED (label > 2)",
    )
    .await;
}

#[tokio::test]
async fn nested_calls_are_one_select_list() {
    let sql =
        "SELECT label, normalize(resize(decode_image(image), 224, 224), [0.5, 0.25]) AS pixels
               FROM images('dir')";
    let resized = call("resize", [col("pixels"), lit(224), lit(224)]);
    same(
        Pipeline::from(images("dir").unwrap())
            .with_column("pixels", call("decode_image", [col("image")]))
            .with_column("pixels", resized)
            .with_column(
                "pixels",
                call("normalize", [col("pixels"), list([0.5, 0.25])]),
            )
            .select([col("label"), col("pixels")]),
        sql,
    )
    .await;
    same(
        Pipeline::from(images("dir").unwrap()).select([
            col("label"),
            call(
                "normalize",
                [
                    call(
                        "resize",
                        [call("decode_image", [col("image")]), lit(224), lit(224)],
                    ),
                    list([0.5, 0.25]),
                ],
            )
            .alias("pixels"),
        ]),
        sql,
    )
    .await;
}

#[tokio::test]
async fn a_column_used_twice_is_computed_once() {
    same(
        photos()
            .with_column("r", call("random_uniform", []))
            .with_column("s", col("r") + lit(1))
            .select([col("r"), col("s")]),
        "SELECT r, r + 1 AS s FROM
         (SELECT *, random_uniform() AS r FROM photos)",
    )
    .await;
    same(
        photos().with_column("r", call("shift", [col("label"), stream("crop")])),
        "SELECT *, shift(label, stream => 'crop') AS r FROM photos",
    )
    .await;
}

#[tokio::test]
async fn clauses() {
    let labels = || photos().select([col("label")]);
    same(
        labels()
            .shuffle(WindowSize::rows(10_000), 42)
            .skip(1)
            .take(100)
            .batch(256)
            .drop_remainder()
            .repeat(90)
            .on_error(OnError::Replace)
            .relax(Relax::Order)
            .optimize(Optimize::Off),
        "SELECT label FROM photos SHUFFLE WITHIN 10000 ROWS SEED 42 SKIP 1 TAKE 100
         BATCH 256 DROP REMAINDER REPEAT 90
         OPTIONS (on_error = 'replace', relax = 'order', optimize = 'off')",
    )
    .await;
    same(
        labels()
            .shuffle(WindowSize::global(), 0)
            .batch(8)
            .global()
            .pad_remainder()
            .repeat_forever(),
        "SELECT label FROM photos SHUFFLE GLOBALLY SEED 0 BATCH 8 GLOBAL PAD REMAINDER REPEAT",
    )
    .await;
    same(
        labels().seed(7).repeat(3).batch(8),
        "SELECT label FROM photos SEED 7 BATCH 8 REPEAT 3 CONTINUOUS",
    )
    .await;
    same(
        labels().repeat_forever().batch(8),
        "SELECT label FROM photos BATCH 8 REPEAT CONTINUOUS",
    )
    .await;
    same(labels().repeat(2), "SELECT label FROM photos REPEAT 2").await;
    same(
        photos()
            .shuffle(WindowSize::global(), 1)
            .filter(col("label").gt(lit(1)))
            .select([col("label")]),
        "SELECT label FROM photos WHERE label > 1 SHUFFLE GLOBALLY SEED 1",
    )
    .await;
}

#[tokio::test]
async fn calls_out_of_order_are_mistakes() {
    let labels = || photos().select([col("label")]);
    insta::assert_snapshot!(mistake(labels().batch(2).filter(col("label").gt(lit(1)))).await, @"filter must come before batch");
    insta::assert_snapshot!(mistake(labels().take(2).filter(col("label").gt(lit(1)))).await, @"filter must come before take");
    insta::assert_snapshot!(mistake(labels().batch(2).with_column("x", lit(1))).await, @"with_column must come before batch");
    insta::assert_snapshot!(mistake(labels().batch(2).batch(3)).await, @"batch is called twice");
    insta::assert_snapshot!(mistake(labels().take(2).skip(3)).await, @"skip must come before take");
    insta::assert_snapshot!(mistake(labels().take(2).shuffle(WindowSize::global(), 0)).await, @"shuffle must come before take");
    insta::assert_snapshot!(mistake(labels().repeat(2).batch(3).repeat(2)).await, @"repeat is called twice");
    insta::assert_snapshot!(mistake(labels().drop_remainder()).await, @"drop_remainder must come after batch");
    insta::assert_snapshot!(mistake(labels().batch(2).drop_remainder().pad_remainder()).await, @"drop_remainder and pad_remainder exclude each other");
    insta::assert_snapshot!(mistake(labels().batch(2).pad_with(1)).await, @"pad_with must come after pad or pad_to");
    insta::assert_snapshot!(mistake(labels().batch(2).pad("label").pad_with("x")).await, @"pad_with expects a number, found x");
    insta::assert_snapshot!(mistake(labels().seed(1).shuffle(WindowSize::global(), 0)).await, @"the seed is set twice");
}

#[tokio::test]
async fn sizes_of_zero_are_mistakes() {
    insta::assert_snapshot!(mistake(photos().shuffle(WindowSize::rows(0), 0)).await, @"WindowSize::rows expects a number of rows of at least 1, found 0");
    insta::assert_snapshot!(mistake(photos().take(0)).await, @"take expects a number of rows of at least 1, found 0");
    insta::assert_snapshot!(mistake(photos().batch(0)).await, @"batch expects a number of rows of at least 1, found 0");
    insta::assert_snapshot!(mistake(photos().batch(1).repeat(0)).await, @"repeat expects a number of epochs of at least 1, found 0");
}

#[tokio::test]
async fn unknown_names_and_wrong_types_are_mistakes() {
    insta::assert_snapshot!(mistake(photos().select([col("lable")])).await, @r#"unknown column "lable"; did you mean "label"?"#);
    insta::assert_snapshot!(mistake(photos().filter(col("lable").gt(lit(1)))).await, @r#"unknown column "lable"; did you mean "label"?"#);
    insta::assert_snapshot!(mistake(photos().with_column("x", call("resise", [col("image")]))).await, @r#"unknown function "resise"; did you mean "resize"?"#);
    insta::assert_snapshot!(mistake(photos().with_column("x", call("uuid", []))).await, @"uuid() is not supported: its result would differ every time; use a column that names the row, or random_uniform()");
    insta::assert_snapshot!(mistake(photos().with_column("x", call("resize", [col("label"), lit(1), lit(1)]))).await, @"resize expects an image, found Int32");
    insta::assert_snapshot!(mistake(photos().with_column("x", call("decode_image", [col("image")])).batch(2)).await, @r#"BATCH needs rows of one shape, but the shape of "x" varies; bring it to a fixed size with resize, center_crop or random_resized_crop"#);
    insta::assert_snapshot!(mistake(photos().select([col("label"), col("label")])).await, @r#"two columns are named "photos.label"; give one of them another name with AS"#);
    insta::assert_snapshot!(mistake(photos().select([])).await, @"select expects a column, found none");
    insta::assert_snapshot!(mistake(Pipeline::from(table("photo"))).await, @r#"unknown table "photo"; did you mean "photos"?"#);
    insta::assert_snapshot!(mistake(Pipeline::from(images("missing").unwrap())).await, @"source images('missing'): no such folder: missing");
    insta::assert_snapshot!(images(" ").unwrap_err(), @"images expects a path, found none");
}

#[tokio::test]
async fn a_built_pipeline_can_be_registered() {
    let mut catalog = filled().await;
    let pipeline = photos()
        .select([col("label")])
        .batch(2)
        .build(&catalog)
        .await
        .unwrap();
    catalog
        .register_pipeline("train", None, Existing::Refuse, pipeline.clone())
        .unwrap();
    assert!(
        catalog
            .register_pipeline("train", None, Existing::Refuse, pipeline.clone())
            .is_err()
    );
    assert!(
        catalog
            .register_pipeline("photos", None, Existing::Replace, pipeline)
            .is_err()
    );
    assert!(
        run(&mut catalog, "SELECT label FROM train")
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn texts_are_columns_or_sql() {
    same(
        photos()
            .filter(sql("label > 1 + 1 AND octet_length(image) > 0"))
            .select([sql("label"), sql("label * 2 AS twice, class")]),
        "SELECT label, label * 2 AS twice, class FROM photos
         WHERE label > 1 + 1 AND octet_length(image) > 0",
    )
    .await;
    same(
        photos()
            .with_column("x", sql("PINNED decode_image(image) -- not yet resized"))
            .with_column("x", call("resize", [sql("x"), lit(8), lit(4 * 2)]))
            .select([sql("x")]),
        "SELECT resize(PINNED decode_image(image), 8, 8) AS x FROM photos",
    )
    .await;
    same(
        photos().select([
            sql("*"),
            call("shift", [sql("label"), stream("crop")]).alias("s"),
        ]),
        "SELECT *, shift(label, stream => 'crop') AS s FROM photos",
    )
    .await;
    // A column name that is not valid SQL.
    same(
        photos()
            .select([col("label").alias("a b")])
            .select([sql("a b")]),
        "SELECT label AS \"a b\" FROM photos",
    )
    .await;
}

#[tokio::test]
async fn mistakes_in_texts_point_into_them() {
    insta::assert_snapshot!(mistake(photos().filter(sql("lable > 1"))).await, @r#"line 1, column 1: unknown column "lable"; did you mean "label"?"#);
    insta::assert_snapshot!(mistake(photos().select([sql("label,\n resise(image)")])).await, @r#"line 2, column 2: unknown function "resise"; did you mean "resize"?"#);
    insta::assert_snapshot!(mistake(photos().filter(sql("label, class"))).await, @r#"expected one expression, found several: "label, class""#);
    insta::assert_snapshot!(mistake(photos().filter(sql("label > 1; SELECT 1"))).await, @"expected expressions, found statements");
    insta::assert_snapshot!(mistake(photos().select([sql("sum(label) AS s")])).await, @r#""sum(label) AS s" is not an expression over single rows; write a whole query with sql(..)"#);
}

#[tokio::test]
async fn a_planned_pipeline_goes_on() {
    let catalog = filled().await;
    let begun = || async {
        let text = "SELECT label, class FROM photos SHUFFLE WITHIN 10 ROWS SEED 3";
        run(&mut filled().await, text)
            .await
            .unwrap()
            .expect("a query")
    };
    let built = begun()
        .await
        .then()
        .filter(sql("label > 1"))
        .take(7)
        .batch(2);
    let built = built.build(&catalog).await.unwrap();
    let clauses = photos()
        .select([col("label"), col("class")])
        .shuffle(WindowSize::rows(10), 3)
        .take(7)
        .batch(2)
        .build(&catalog)
        .await
        .unwrap()
        .clauses;
    assert_eq!(built.clauses, clauses);
    insta::assert_snapshot!(built.plan.display_indent(), @r"
    Projection: photos.label, photos.class
      Filter: CAST(photos.label AS Int64) > Int64(1)
        Projection: photos.label, photos.class
          TableScan: photos
    ");

    for (call, message) in [
        (
            begun().await.then().shuffle(WindowSize::global(), 0),
            "shuffle is called twice",
        ),
        (begun().await.then().seed(1), "the seed is set twice"),
        (
            begun().await.then().batch(2).take(1),
            "take must come before batch",
        ),
    ] {
        assert_eq!(call.build(&catalog).await.unwrap_err().to_string(), message);
    }
    let unseeded = photos().seed(7).shuffle_unseeded(WindowSize::global());
    let clauses = unseeded.build(&catalog).await.unwrap().clauses;
    assert_eq!(
        (clauses.seed, clauses.shuffle),
        (Some(7), Some(clauses::ShuffleWindow::Global))
    );
}

#[tokio::test]
async fn a_column_is_named_by_its_exact_spelling_else_by_the_only_one_alike() {
    let cases = || Pipeline::from(parquet("cases").unwrap());
    same(
        cases()
            .filter(col("Label").gt(col("label")))
            .select([col("Label"), col("NAME")]),
        "SELECT \"Label\", \"Name\" FROM parquet('cases') WHERE \"Label\" > \"label\"",
    )
    .await;
    same(
        cases().select([sql("label"), sql("upper(name) AS u")]),
        "SELECT label, upper(\"Name\") AS u FROM parquet('cases')",
    )
    .await;
    insta::assert_snapshot!(mistake(cases().select([col("LABEL")])).await, @r#""LABEL" is ambiguous: it could be any of the columns "Label", "label"; write it exactly as one of them is spelled"#);
}
