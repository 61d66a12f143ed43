//! Packs, buckets, batches by tokens and padded columns have the specified contents. Tokens of
//! other streams are refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow::util::pretty::pretty_format_batches;
use forebay::{Batch, RunConfig, Session};

/// Creates a session over a table of six rows, which have lists of 3, 4, 2, 1, 5 and 2 numbers.
async fn session() -> (tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let mut lines = String::new();
    for (id, length) in [3, 4, 2, 1, 5, 2].into_iter().enumerate() {
        let ids: Vec<usize> = (1..=length).map(|n| id * 10 + n).collect();
        writeln!(lines, r#"{{"id": {id}, "ids": {ids:?}}}"#).unwrap();
    }
    std::fs::write(&file, lines).unwrap();
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS JSON LOCATION '{}'",
        file.display()
    );
    session.execute(&sql).await.unwrap();
    (folder, session)
}

async fn run(session: &Session, query: &str, config: RunConfig) -> Result<Vec<Batch>, String> {
    let sql = format!("CREATE OR REPLACE PIPELINE p AS SELECT id, ids FROM t {query}");
    session.execute(&sql).await.map_err(|e| e.to_string())?;
    let mut run = session.run("p", config).await.map_err(|e| e.to_string())?;
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        batches.push(batch.map_err(|e| e.to_string())?);
    }
    Ok(batches)
}

async fn batches(session: &Session, query: &str) -> Vec<RecordBatch> {
    let batches = run(session, query, RunConfig::default()).await.unwrap();
    batches.into_iter().map(|batch| batch.batch).collect()
}

fn ids(batches: &[RecordBatch]) -> Vec<Vec<i64>> {
    let ids = batches
        .iter()
        .map(|batch| batch["id"].as_primitive::<Int64Type>().values().to_vec());
    ids.collect()
}

/// Under `on_error = 'null'`, a sequence that is longer than a pack becomes null, and takes no
/// space in a pack.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_that_is_too_long_for_its_pack_is_null() {
    let (_folder, session) = session().await;
    let options = "OPTIONS (on_error = 'null')";
    let packed = batches(&session, &format!("PACK ids INTO 4 BATCH 1 {options}")).await;
    insta::assert_snapshot!(pretty_format_batches(&packed).unwrap(), @r#"
    +-----------+------------------+-----------------+---------------+
    | id        | ids              | ids_segment_ids | ids_positions |
    +-----------+------------------+-----------------+---------------+
    | [1]       | [11, 12, 13, 14] | [1, 1, 1, 1]    | [0, 1, 2, 3]  |
    | [0, 3]    | [1, 2, 3, 31]    | [1, 1, 1, 2]    | [0, 1, 2, 0]  |
    | [2, 4, 5] | [21, 22, 51, 52] | [1, 1, 3, 3]    | [0, 1, 0, 1]  |
    +-----------+------------------+-----------------+---------------+
    "#);
    let query = format!("BATCH BY TOKENS 4 ON ids {options}");
    let by_tokens = batches(&session, &query).await;
    insta::assert_snapshot!(pretty_format_batches(&by_tokens).unwrap(), @r#"
    +----+------------------+
    | id | ids              |
    +----+------------------+
    | 0  | [1, 2, 3]        |
    | 1  | [11, 12, 13, 14] |
    | 2  | [21, 22]         |
    | 3  | [31]             |
    | 4  |                  |
    | 5  | [51, 52]         |
    +----+------------------+
    "#);
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_have_segments_and_positions() {
    let (_folder, session) = session().await;
    let packed = batches(&session, "PACK ids INTO 7 BATCH 2 PAD ids WITH -1").await;
    insta::assert_snapshot!(pretty_format_batches(&packed).unwrap(), @r#"
    +-----------+------------------------------+-----------------------+-----------------------+
    | id        | ids                          | ids_segment_ids       | ids_positions         |
    +-----------+------------------------------+-----------------------+-----------------------+
    | [0, 1]    | [1, 2, 3, 11, 12, 13, 14]    | [1, 1, 1, 2, 2, 2, 2] | [0, 1, 2, 0, 1, 2, 3] |
    | [2, 3, 5] | [21, 22, 31, 51, 52, -1, -1] | [1, 1, 2, 3, 3, 0, 0] | [0, 1, 0, 0, 1, 0, 0] |
    | [4]       | [41, 42, 43, 44, 45, -1, -1] | [1, 1, 1, 1, 1, 0, 0] | [0, 1, 2, 3, 4, 0, 0] |
    +-----------+------------------------------+-----------------------+-----------------------+
    "#);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_grouped_by_bucket_and_by_tokens() {
    let (_folder, session) = session().await;
    let bucketed = batches(
        &session,
        "BUCKET BY array_length(ids) BOUNDARIES (2, 4) BATCH 2",
    )
    .await;
    // Row 3 has a list shorter than 2 elements, rows 0, 2 and 5 have 2 or 3 elements, and rows 1
    // and 4 have more.
    assert_eq!(ids(&bucketed), [vec![0, 2], vec![1, 4], vec![3], vec![5]]);
    let by_tokens = batches(&session, "BATCH BY TOKENS 7 ON ids").await;
    assert_eq!(ids(&by_tokens), [vec![0, 1], vec![2, 3], vec![4, 5]]);
    let padded = batches(&session, "BATCH BY TOKENS 8 ON ids PAD ids").await;
    // The number of tokens in a padded batch is its number of rows times its longest list: 2 x 4, 2
    // x 2, 1 x 5, 1 x 2.
    assert_eq!(ids(&padded), [vec![0, 1], vec![2, 3], vec![4], vec![5]]);
    for batch in &padded {
        let lists = batch["ids"].as_list::<i32>();
        let widths: Vec<usize> = (0..lists.len()).map(|i| lists.value(i).len()).collect();
        let lengths = batch["ids_length"].as_primitive::<Int32Type>().values();
        assert!(
            widths
                .iter()
                .all(|width| *width as i32 == *lengths.iter().max().unwrap())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_that_is_too_long_is_an_error_of_its_row() {
    let (_folder, session) = session().await;
    for (query, operator) in [
        ("PACK ids INTO 4 BATCH 1", "PACK ids INTO 4"),
        ("BATCH BY TOKENS 4 ON ids", "BATCH BY TOKENS 4 ON ids"),
        ("BATCH 2 PAD ids TO 4", "PAD ids TO 4"),
    ] {
        let failed = run(&session, query, RunConfig::default())
            .await
            .unwrap_err();
        assert!(failed.contains("row 4: "), "{failed}");
        assert!(
            failed.contains(operator) && failed.contains("has 5 elements"),
            "{failed}"
        );
        let skipping = format!("{query} OPTIONS (on_error = 'skip')");
        let skipped = run(&session, &skipping, RunConfig::default())
            .await
            .unwrap();
        let rows: usize = skipped.iter().map(|batch| batch.rows.row.len()).sum();
        assert_eq!(rows, 5, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_stream_is_refused_and_the_difference_named() {
    let (folder, session) = session().await;
    let query = "SHUFFLE WITHIN 3 ROWS SEED 1 BATCH 2";
    let token = run(&session, query, RunConfig::default()).await.unwrap()[0].token();
    let refusal = async |query: &str, seed| {
        let config = RunConfig {
            resume: Some(Arc::new(token.clone())),
            seed,
            ..RunConfig::default()
        };
        run(&session, query, config).await.unwrap_err()
    };
    let why = refusal("SHUFFLE WITHIN 3 ROWS SEED 1 BATCH 3", None).await;
    assert!(
        why.contains("`batch 2 perrank keep` was in the token, `batch 3 perrank keep` is now"),
        "{why}"
    );
    let why = refusal(&format!("WHERE id > 0 {query}"), None).await;
    assert!(why.contains("its query differs"), "{why}");
    let why = refusal(query, Some(9)).await;
    assert!(why.contains("the seed is 9, but was 1"), "{why}");
    let why = refusal("SHUFFLE WITHIN 3 ROWS SEED 2 BATCH 2", None).await;
    assert!(why.contains("the seed is 2, but was 1"), "{why}");
    // If neither the pipeline nor the run sets a seed, the resumed run uses the seed in the token.
    let config = RunConfig {
        resume: Some(Arc::new(token.clone())),
        ..RunConfig::default()
    };
    let rest = run(&session, "SHUFFLE WITHIN 3 ROWS BATCH 2", config)
        .await
        .unwrap();
    assert_eq!(rest.len(), 2);
    let file = folder.path().join("t.json");
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, lines + "{\"id\": 6, \"ids\": [1]}\n").unwrap();
    let sql = format!(
        "CREATE OR REPLACE EXTERNAL TABLE t STORED AS JSON LOCATION '{}'",
        file.display()
    );
    session.execute(&sql).await.unwrap();
    let why = refusal(query, None).await;
    assert!(
        why.contains("the data has changed: 1 files, 6 rows, ") && why.contains("now"),
        "{why}"
    );
}
