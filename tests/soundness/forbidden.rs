//! Tests of forbidden rewrites: for each, a query whose result would change if a plan applied the
//! rewrite.

use datafusion::logical_expr::{col, lit};
use forebay_planner::catalog::Catalog;
use forebay_planner::clauses::Relax;
use forebay_planner::optimizer::arena::Arena;
use forebay_planner::optimizer::ids::ParamId;
use forebay_planner::optimizer::rules::{Site, rules};
use forebay_planner::optimizer::slots::SlotSet;
use forebay_planner::optimizer::spec::OpKind;
use forebay_runtime::run::RunConfig;
use tempfile::TempDir;

use crate::check::{in_tier, planned, tried};
use crate::data;
use crate::stream::Stream;

async fn catalog() -> (TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = data::catalog(dir.path()).await;
    (dir, catalog)
}

/// Returns the file and row number of each row of a query, or the query's error. Panics if two
/// tiers differ in the rows, in their order or in the error.
async fn outcome(sql: &str) -> Result<Vec<(String, u64)>, String> {
    let (_dir, catalog) = catalog().await;
    tried(&catalog, sql).await
}

async fn rows(sql: &str) -> Vec<u64> {
    let rows = outcome(sql).await.unwrap();
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Returns the file names of the rows of a query.
async fn files(sql: &str) -> Vec<String> {
    let rows = outcome(sql).await.unwrap();
    let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
    rows.into_iter().map(|(file, _)| name(file)).collect()
}

#[track_caller]
fn assert_fails(outcome: &Result<Vec<(String, u64)>, String>, parts: &[&str]) {
    let error = outcome.as_ref().unwrap_err();
    for part in parts {
        assert!(error.contains(part), "{error} does not say {part}");
    }
}

/// Asserts that no rule of any tier swaps the operators `outer` and `inner`.
fn never_swapped(arena: &mut Arena, outer: ParamId, inner: ParamId) {
    for rule in rules() {
        let verdict = (rule.apply)(arena, Site::of(outer, inner));
        let moved = matches!(&verdict, Some(Ok(ops)) if *ops != [inner, outer]);
        assert!(!moved, "{rule:?} moves operators past each other");
    }
}

fn filter_and(others: impl Fn(&mut Arena) -> ParamId) {
    let mut arena = Arena::default();
    arena.slot("id");
    let filter = arena.filter(col("id").gt(lit(3)), false);
    let other = others(&mut arena);
    never_swapped(&mut arena, filter, other);
    never_swapped(&mut arena, other, filter);
}

fn plain(arena: &mut Arena, kind: OpKind) -> ParamId {
    let text = format!("{kind:?}");
    arena.plain(kind, text, SlotSet::default(), SlotSet::default())
}

#[test]
fn no_rule_moves_a_filter_past_take() {
    filter_and(|arena| arena.take(1, 5, true));
    filter_and(|arena| arena.take(0, 5, false));
}

#[test]
fn no_rule_moves_a_filter_past_limit() {
    let fetch = Some(5);
    filter_and(|arena| plain(arena, OpKind::Limit { skip: 0, fetch }));
}

#[test]
fn no_rule_moves_a_filter_past_batch() {
    for drop_remainder in [false, true] {
        let rows = 4;
        let kind = OpKind::Batch {
            rows,
            drop_remainder,
        };
        filter_and(|arena| plain(arena, kind.clone()));
    }
}

#[test]
fn no_rule_moves_take_past_batch() {
    let mut arena = Arena::default();
    let take = arena.take(0, 5, true);
    let rows = 4;
    let drop_remainder = true;
    let batch = plain(
        &mut arena,
        OpKind::Batch {
            rows,
            drop_remainder,
        },
    );
    never_swapped(&mut arena, take, batch);
    never_swapped(&mut arena, batch, take);
}

#[tokio::test]
async fn a_filter_stays_above_limit() {
    let sql = "SELECT id FROM (SELECT id FROM t LIMIT 8) AS q WHERE id > 3";
    assert_eq!(rows(sql).await, [4, 5, 6, 7]);
    let sql = "SELECT id FROM (SELECT id FROM t WHERE id > 3 LIMIT 2 OFFSET 1) AS q WHERE id > 5";
    assert_eq!(rows(sql).await, [6]);
}

#[tokio::test]
async fn take_stays_above_a_filter() {
    let sql = "SELECT id FROM t WHERE id > 3 SKIP 1 TAKE 3 BATCH 2";
    assert_eq!(rows(sql).await, [5, 6, 7]);
}

#[tokio::test]
async fn a_remainder_is_dropped_after_the_filter() {
    let sql = "SELECT id FROM t WHERE id > 3 AND id < 9 BATCH 2 DROP REMAINDER";
    assert_eq!(rows(sql).await, [4, 5, 6, 7]);
}

#[tokio::test]
async fn a_dropped_row_surfaces_no_error_of_decoding_below_the_filter() {
    let sql =
        "SELECT px FROM (SELECT resize(decode_image(image), 4, 4) AS px, path FROM photos) AS q
               WHERE path LIKE '%13.png'";
    assert_eq!(files(sql).await, ["13.png"]);
}

#[tokio::test]
async fn a_kept_row_surfaces_its_error_of_decoding_above_the_filter() {
    let sql =
        "SELECT resize(decode_image(image), 4, 4) AS px FROM photos WHERE path LIKE '%broken%'";
    assert_fails(
        &outcome(sql).await,
        &["broken.jpg, row 0", "decode_image for column \"px\""],
    );
    // The truncated file has a complete header, so a filter on the image size does not fail.
    let sql = "SELECT decode_image(image) AS px FROM photos
               WHERE path LIKE '%cut%' AND image_width(image) > 0";
    assert_fails(
        &outcome(sql).await,
        &["cut.jpg", "decode_image for column \"px\""],
    );
}

#[tokio::test]
async fn a_failing_filter_is_reported_before_a_failing_function() {
    for sql in [
        "SELECT CAST(name AS BIGINT) AS n FROM t WHERE 10 / d > 0",
        "SELECT n FROM (SELECT CAST(name AS BIGINT) AS n, d FROM t) AS q WHERE 10 / d > 0",
    ] {
        // Row 0 has d = 0 and no name; row 7 has d = 0 and a name that is not a number.
        assert_fails(
            &outcome(sql).await,
            &["row 0: / in a filter", "Divide by zero"],
        );
    }
}

#[tokio::test]
async fn the_first_of_two_failing_filters_is_reported() {
    let sql = "SELECT id FROM t WHERE id = 7 AND CAST(name AS BIGINT) > 0 AND 10 / d > 0";
    assert_fails(&outcome(sql).await, &["row 7: CAST AS Int64 in a filter"]);
    let sql = "SELECT id FROM t WHERE id = 7 AND 10 / d > 0 AND CAST(name AS BIGINT) > 0";
    assert_fails(&outcome(sql).await, &["row 7: / in a filter"]);
}

/// `q IS NOT NULL` raises no error itself, but it fails if the column `q` that it reads has failed.
#[tokio::test]
async fn a_predicate_over_a_failing_column_stays_before_a_failing_one() {
    let sql = "SELECT id FROM (SELECT id, name, 10 / d AS q FROM t) AS s
               WHERE q IS NOT NULL AND CAST(name AS BIGINT) > 0 AND id = 7";
    assert_fails(&outcome(sql).await, &["row 7: / in a filter"]);
}

#[tokio::test]
async fn a_failing_key_of_a_join_stays_before_a_failing_filter() {
    let sql = "SELECT s.id FROM t AS s JOIN names AS n ON 10 / s.d = n.key
               WHERE s.id = 7 AND CAST(s.name AS BIGINT) > 0";
    assert_fails(&outcome(sql).await, &["row 7: / in a filter"]);
}

/// If the filter moved below the join, the filter would raise an error for rows that the join
/// drops.
#[tokio::test]
async fn a_row_without_a_match_surfaces_no_error_of_a_filter() {
    let sql = "SELECT s.id FROM t AS s JOIN names AS n ON s.d = n.key
               WHERE s.id < 3 AND 10 / (s.id - 1) <> 0";
    assert_eq!(rows(sql).await, [0]);
}

/// One input of this union is non-nullable, but the union is nullable. An expression above the
/// union must not be simplified as if its column were non-nullable.
#[tokio::test]
async fn a_failing_predicate_below_a_union_is_evaluated() {
    let sql = "SELECT label FROM (SELECT label FROM clean UNION ALL SELECT label FROM photos) AS s
               WHERE 10 / label IS NOT NULL";
    assert_fails(&outcome(sql).await, &["00.jpg, row 0: / in a filter"]);
}

#[tokio::test]
async fn a_false_conjunct_hides_a_failing_one_in_either_order() {
    for filter in [
        "id < 3 AND 10 / (id - 7) <> 0",
        "10 / (id - 7) <> 0 AND id < 3",
    ] {
        let sql = format!("SELECT id FROM t WHERE {filter}");
        assert_eq!(rows(&sql).await, [0, 1, 2]);
    }
}

#[tokio::test]
async fn a_dropped_column_surfaces_no_error() {
    let sql = "SELECT id FROM (SELECT id, 10 / d AS q, one_hot(id, 2) AS h FROM t) AS s TAKE 3";
    assert_eq!(rows(sql).await, [0, 1, 2]);
    let sql = "SELECT path FROM (SELECT path, decode_image(image) AS px FROM photos) AS q";
    assert_eq!(files(sql).await.len(), 17);
}

#[tokio::test]
async fn a_column_that_only_a_filter_reads_surfaces_its_error() {
    let sql = "SELECT id FROM (SELECT id, 10 / d AS q FROM t) AS s WHERE q > 0";
    assert_fails(&outcome(sql).await, &["row 0: / in a filter"]);
}

#[tokio::test]
async fn rows_after_take_surface_no_error() {
    let sql = "SELECT 10 / (id - 9) AS q FROM t TAKE 9 BATCH 4";
    assert_eq!(rows(sql).await.len(), 9);
    let sql = "SELECT 10 / (id - 9) AS q FROM t TAKE 10 BATCH 4";
    assert_fails(&outcome(sql).await, &["row 9: / for column \"q\""]);
}

/// If the two projections were merged, the failing column would be evaluated only for rows in which
/// CASE reads it.
#[tokio::test]
async fn a_condition_above_a_failing_column_does_not_hide_its_error() {
    for above in [
        "CASE WHEN d = 0 THEN 0 ELSE q END",
        "CASE WHEN d <> 0 AND q > 0 THEN 1 ELSE 0 END",
        "d = 0 OR q > 0",
        "coalesce(d, q)",
    ] {
        let sql = format!("SELECT {above} AS c FROM (SELECT d, 10 / d AS q FROM t) AS s");
        assert_fails(&outcome(&sql).await, &["row 0: / for column \"c\""]);
    }
}

/// If the two projections were merged, the left operand of `+` would be evaluated first, and its
/// error reported instead.
#[tokio::test]
async fn an_operand_before_a_failing_column_does_not_hide_its_error() {
    let sql = "SELECT CAST(name AS BIGINT) + q AS c
               FROM (SELECT id, name, 10 / d AS q FROM t) AS s WHERE id = 7";
    assert_fails(&outcome(sql).await, &["row 7: / for column \"c\""]);
}

/// Pruning columns changes the indices of the other columns, so error messages must not contain
/// indices of columns.
#[tokio::test]
async fn an_error_does_not_contain_column_numbers_of_the_plan() {
    let sql = "SELECT CAST(name || '?' AS BIGINT) AS n FROM t";
    let error = outcome(sql).await.unwrap_err();
    assert_fails(
        &Err(error.clone()),
        &["row 1: CAST AS Int64 for column \"n\": Cast error"],
    );
    assert!(!error.contains('@'), "{error}");
}

/// If two columns fail, the error of the column that the predicate names first is reported, even if
/// a rewrite changes the order of the columns.
#[tokio::test]
async fn the_first_column_read_of_two_failing_ones_is_reported() {
    let sql = "SELECT decode_image(image, 'gray') AS pixels
               FROM (SELECT image, label, coalesce(CAST(path AS DOUBLE), 0.5) AS first,
                            CAST((path || '1') AS BIGINT) AS second
                     FROM clean) AS s
               WHERE abs(CASE WHEN first < 8 THEN label ELSE second END - 3) > 1";
    assert_fails(&outcome(sql).await, &["row 0: CAST AS Float64"]);
}

/// A LIMIT over a random filter is refused, wherever it is and whatever other mistakes the pipeline
/// has.
#[tokio::test]
async fn a_limit_that_cannot_be_resolved_is_refused_as_written() {
    let sql = "SELECT CAST(substr('7', 2) AS DOUBLE) AS c
               FROM (SELECT id FROM t WHERE random_uniform() < 0.4) AS s LIMIT 6";
    assert_fails(&outcome(sql).await, &["LIMIT over a random filter"]);
    let sql = "SELECT CAST(substr('7', 2) AS DOUBLE) AS c, item
               FROM (SELECT unnest(list) AS item FROM t) AS s LIMIT 6";
    assert_fails(&outcome(sql).await, &["LIMIT over unnest"]);
}

#[tokio::test]
async fn a_limit_above_a_join_counts_the_rows_of_the_join() {
    let sql = "SELECT s.id, n.title FROM t AS s JOIN names AS n ON s.d = n.key LIMIT 3 OFFSET 1";
    assert_eq!(rows(sql).await, [3, 5, 6]);
}

/// Gray pixels have no hue, so `color_jitter` after `grayscale` gives other values. (The tier
/// `statistical` may swap the two functions, as planner/src/optimizer/tests/plans.rs tests.)
#[tokio::test]
async fn grayscale_stays_above_hue_jitter_in_exact() {
    let (_dir, catalog) = catalog().await;
    let sql =
        "SELECT grayscale(color_jitter(resize(decode_image(image), 8, 8), 0.4, 0.4, 0.4, 0.1))
                 AS pixels FROM clean BATCH 4";
    let (pipeline, written) = planned(&catalog, sql).await.unwrap();
    let config = RunConfig::default();
    let expected = Stream::of(&written, &config).await;
    assert_eq!(expected.rows(), 14);
    for tier in [Relax::Exact, Relax::Numeric, Relax::Order] {
        let compiled = in_tier(&pipeline, &written, tier);
        let plan = compiled.chosen.to_string();
        assert!(plan.contains("color_jitter #0 > grayscale 1"), "{plan}");
        let stream = Stream::of(&compiled, &config).await;
        assert_eq!(expected.differs_exactly(&stream), None);
    }
}
