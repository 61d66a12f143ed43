//! Pipelines with many columns or deep nesting are planned in bounded memory, and produce the same
//! stream as without optimisation. Statements do not wait for running queries.

use std::fmt::Write;
use std::task::Poll;
use std::time::Duration;

use forebay::clauses::Optimize;
use forebay::{RunConfig, Session};
use futures::FutureExt;

use crate::common::{batches, digest, parquet, table};

/// Creates a session with a pipeline `p` whose query is `query`, over a table `t` of 40 rows.
async fn session(folder: &std::path::Path, query: &str) -> Session {
    let file = folder.join("t.parquet");
    parquet(&file, &table(40), 10);
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}';
         CREATE PIPELINE p AS {query}",
        file.display()
    );
    session.execute(&sql).await.unwrap();
    session
}

/// Returns the digest of the pipeline `p`. Panics if the optimised and the unoptimised plan have
/// different digests.
async fn same_as_written(session: &Session) -> String {
    let mut digests = [Optimize::Default, Optimize::Off].map(|_| String::new());
    for (digest_of, optimize) in digests.iter_mut().zip([Optimize::Default, Optimize::Off]) {
        let config = RunConfig {
            optimize: Some(optimize),
            ..RunConfig::default()
        };
        *digest_of = digest(&batches(session, "p", config).await.unwrap());
    }
    let [chosen, written] = digests;
    assert_eq!(chosen, written);
    chosen
}

/// Returns `id` and `n` computed columns as SQL: numbers, strings, random draws, and expressions
/// that fail for some rows.
fn computed(n: usize) -> String {
    let mut columns = String::from("id");
    for i in 0..n {
        let _ = match i % 5 {
            0 => write!(columns, ", id * {i} + 1 AS c{i}"),
            1 => write!(columns, ", x * {i}.5 - id AS c{i}"),
            2 => write!(columns, ", name || '{i}' AS c{i}"),
            3 => write!(columns, ", random_int(0, {i}) AS c{i}"),
            _ => write!(columns, ", 100 / (d - {}) AS c{i}", i % 17),
        };
    }
    columns
}

#[tokio::test]
async fn many_computed_columns_give_the_rows_of_the_written_plan() {
    let folder = tempfile::tempdir().unwrap();
    let query = format!(
        "SELECT *, c0 + c6 AS z FROM (SELECT {}, list FROM t) AS q WHERE c1 > -100 AND c5 % 3 = 1
         SHUFFLE WITHIN 10 ROWS SEED 7 BATCH 4 OPTIONS (on_error = 'null')",
        computed(120)
    );
    same_as_written(&session(folder.path(), &query).await).await;
}

#[tokio::test]
async fn columns_that_are_read_above_are_dropped_or_kept_alike() {
    let folder = tempfile::tempdir().unwrap();
    // Of the inner query's columns, some are read, some are renamed, and most are dropped.
    let query = format!(
        "SELECT c2 AS text, c3 AS drawn, c4, c10 + c15 AS sum FROM (SELECT {} FROM t) AS q
         WHERE c20 > 30 BATCH 4 OPTIONS (on_error = 'skip')",
        computed(90)
    );
    same_as_written(&session(folder.path(), &query).await).await;
    let all = computed(50);
    let query = format!(
        "SELECT * FROM (SELECT {all} FROM t UNION ALL SELECT {all} FROM t WHERE id < 9) AS u
         WHERE c0 >= 1 BATCH 4 OPTIONS (on_error = 'null')"
    );
    same_as_written(&session(folder.path(), &query).await).await;
}

#[tokio::test]
async fn a_condition_of_many_parts_keeps_the_rows_of_the_written_plan() {
    let folder = tempfile::tempdir().unwrap();
    // Joins the parts with AND and parentheses as a balanced tree, so that the condition is long
    // but not deeply nested. Some parts raise an error for some rows.
    fn all(parts: &[String]) -> String {
        match parts {
            [only] => only.clone(),
            parts => {
                let (a, b) = parts.split_at(parts.len() / 2);
                format!("({} AND {})", all(a), all(b))
            }
        }
    }
    let parts: Vec<String> = (0..200)
        .map(|i| match i {
            70 => "100 / (d - 3) <> 7".to_owned(),
            90 => "name <> 'n4'".to_owned(),
            _ => format!("id <> {}", i * 3),
        })
        .collect();
    let query = format!(
        "SELECT id, x * 2 AS x FROM t WHERE {} BATCH 4 OPTIONS (on_error = 'skip')",
        all(&parts)
    );
    same_as_written(&session(folder.path(), &query).await).await;
}

#[tokio::test]
async fn a_value_doubled_forty_times_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), "SELECT id FROM t BATCH 4").await;
    let mut plans = Vec::new();
    for level in 0..42 {
        let read = if level == 0 { "t" } else { "p" };
        let sql = format!(
            "CREATE OR REPLACE PIPELINE p AS SELECT (id + id) % 1009 AS id FROM {read} BATCH 4"
        );
        session.execute(&sql).await.unwrap();
        if level >= 40 {
            for _ in 0..2 {
                let plan = session.plan("p", RunConfig::default()).await.unwrap();
                plans.push(plan.to_json().unwrap());
            }
        }
    }
    assert_eq!(plans[0], plans[1]);
    assert_ne!(plans[0], plans[2]);
    same_as_written(&session).await;
}

#[tokio::test]
async fn pipelines_that_read_pipelines_twice_end_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), "SELECT id FROM t BATCH 4").await;
    let mut read = "p".to_owned();
    for level in 0..40 {
        let sql = format!(
            "CREATE PIPELINE p{level} AS SELECT id FROM {read} UNION ALL SELECT id + 1 AS id FROM {read}"
        );
        match session.execute(&sql).await {
            Ok(_) => read = format!("p{level}"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("more than 1024 tables"), "{error}");
                // A query of ten levels reads 2^10 tables, which is the maximum allowed.
                assert_eq!(level, 10);
                return;
            }
        }
    }
    panic!("two to the fortieth tables were planned");
}

#[tokio::test]
async fn a_pipeline_that_exists_is_not_planned_again() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), "SELECT id FROM t BATCH 4").await;
    let before = same_as_written(&session).await;
    let sql = "CREATE PIPELINE IF NOT EXISTS p AS SELECT nothing FROM nowhere BATCH 2";
    session.execute(sql).await.unwrap();
    assert_eq!(same_as_written(&session).await, before);
    let error = session.execute("CREATE PIPELINE p AS SELECT nothing FROM nowhere");
    let error = error.await.unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
}

#[tokio::test]
async fn statements_do_not_wait_for_a_running_query() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), "SELECT id FROM t BATCH 4").await;
    let mut query = std::pin::pin!(session.execute("SELECT id FROM p WHERE id > 3"));
    // The query waits for its first rows, and is not polled again until the statement below has
    // finished.
    let waits = std::future::poll_fn(|context| Poll::Ready(query.poll_unpin(context).is_pending()));
    assert!(waits.await);
    let sql = "CREATE PIPELINE other AS SELECT x FROM t BATCH 2; DROP PIPELINE p";
    let created = tokio::time::timeout(Duration::from_secs(120), session.execute(sql)).await;
    created.expect("the query holds the catalogue").unwrap();
    // The query uses the catalogue from the time when the query started, so it succeeds although
    // `p` was dropped.
    query.await.unwrap();
    assert_eq!(session.names().await, ["t", "other"]);
}
