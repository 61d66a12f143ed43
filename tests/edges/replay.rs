//! A replay of dead letters computes each failed row again by itself, whatever the policy
//! `on_error` is.

use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use forebay::{RunConfig, RunInternals, RunScope, RunStats, Session, dead_letters};

/// Writes two files with 60 rows in total. Unless `is_mended` is true, every tenth row fails in the
/// pipelines, because its `den` is 0.
fn write(folder: &Path, is_mended: bool) {
    for (file, rows) in [("a", 0..40), ("b", 40..60)] {
        let den = |id: i64| if id % 10 == 9 && !is_mended { 0 } else { 1 };
        let line = |id| {
            format!(
                "{{\"id\": {id}, \"den\": {}, \"ids\": [{id}, 7]}}\n",
                den(id)
            )
        };
        let lines: String = rows.map(line).collect();
        std::fs::write(folder.join(format!("{file}.json")), lines).unwrap();
    }
}

async fn session(folder: &Path, from: &str, clauses: &str, on_error: &str) -> Session {
    let session = Session::new();
    let at = folder.display();
    let sql = format!(
        "CREATE EXTERNAL TABLE a STORED AS JSON LOCATION '{at}/a.json';
         CREATE EXTERNAL TABLE b STORED AS JSON LOCATION '{at}/b.json';
         CREATE PIPELINE p AS SELECT id, id / den + random_int(0, 1000) AS x, ids FROM {from} {clauses}
         OPTIONS (on_error = '{on_error}', dead_letters = '{at}/dead', error_budget = '25 %')"
    );
    session.execute(&sql).await.unwrap();
    session
}

/// Runs the pipeline `p`. Returns its rows as pairs (id, x), the statistics, and the message of the
/// error that ended the run.
async fn run(
    session: &Session,
    config: RunConfig,
) -> (Vec<(i64, Option<i64>)>, RunStats, Option<String>) {
    let mut run = session.run("p", config).await.unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = run.next().await {
        match batch {
            Ok(batch) => {
                let batch = batch.batch;
                // In a batch of packs, `id` is a column of lists.
                let Some(id) = batch["id"].as_primitive_opt::<Int64Type>() else {
                    continue;
                };
                let x = batch["x"].as_primitive::<Int64Type>();
                rows.extend(id.values().iter().copied().zip(x.iter()));
            }
            Err(error) => return (rows, run.stats(), Some(error.to_string())),
        }
    }
    (rows, run.stats(), None)
}

/// Replays the dead letters in a folder.
async fn replay(
    folder: &Path,
    session: &Session,
) -> (Vec<(i64, Option<i64>)>, RunStats, Option<String>) {
    let letters = dead_letters::read(&folder.join("dead")).unwrap();
    let config = RunConfig {
        internals: RunInternals {
            scope: RunScope::DeadLetters(Arc::new(letters)),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    run(session, config).await
}

const FAILED: [i64; 6] = [9, 19, 29, 39, 49, 59];

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_still_fail_and_rows_that_were_mended_are_replayed_under_every_policy() {
    let union = "(SELECT * FROM a UNION ALL SELECT * FROM b) AS t";
    let mix = "MIX (a WEIGHT 2, b WEIGHT 1, stop => 'longest')";
    let cases = [
        (union, "SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 8", "replace"),
        (union, "BATCH 60 DROP REMAINDER", "replace"),
        (mix, "SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 30", "replace"),
        (
            union,
            "BUCKET BY id BOUNDARIES (20, 40) BATCH 15",
            "replace",
        ),
        (union, "SHUFFLE GLOBALLY SEED 3 BATCH 8", "skip"),
        (union, "PACK ids INTO 6 BATCH 2", "skip"),
        (mix, "BATCH 8", "skip"),
        (union, "SHUFFLE GLOBALLY SEED 3 BATCH 8", "null"),
        (mix, "BATCH 8", "null"),
    ];
    for (from, clauses, on_error) in cases {
        let case = format!("{from} {clauses} {on_error}");
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), false);
        let broken = session(folder.path(), from, clauses, on_error).await;
        let (_, _, error) = run(&broken, RunConfig::default()).await;
        assert_eq!(error, None, "{case}");
        // As long as the data is not mended, all replayed rows fail again.
        let (rows, stats, error) = replay(folder.path(), &broken).await;
        assert_eq!(error, None, "{case}");
        let mut nulled: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        nulled.sort_unstable();
        nulled.dedup();
        let (counted, left) = match on_error {
            "null" => (stats.nulled, FAILED.as_slice()),
            _ => (stats.skipped, [].as_slice()),
        };
        assert!(counted >= 6 && stats.replaced == 0, "{case}: {stats:?}");
        assert_eq!(nulled, left, "{case}");
        assert!(rows.iter().all(|(_, x)| x.is_none()), "{case}");
        // After the data is mended, each replayed row has the value that it has without failures.
        write(folder.path(), true);
        let mended = session(folder.path(), from, clauses, on_error).await;
        let (rows, stats, error) = replay(folder.path(), &mended).await;
        assert_eq!(error, None, "{case}");
        assert_eq!(stats.skipped + stats.replaced + stats.nulled, 0, "{case}");
        let mut ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids, FAILED, "{case}");
        let (whole, _, error) = run(&mended, RunConfig::default()).await;
        assert_eq!(error, None, "{case}");
        if !clauses.contains("PACK") {
            assert!(rows.iter().all(|row| whole.contains(row)), "{case}");
        }
    }
}

/// Dead letters of several ranks and of a resumed run are replayed together.
#[tokio::test(flavor = "multi_thread")]
async fn letters_of_ranks_and_of_resumed_runs_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), false);
    let broken = session(
        folder.path(),
        "a",
        "SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 5",
        "replace",
    )
    .await;
    for rank in 0..2 {
        let of_rank = |limit_batches, resume| RunConfig {
            rank,
            world: 2,
            limit_batches,
            resume,
            ..RunConfig::default()
        };
        let mut first = broken.run("p", of_rank(Some(2), None)).await.unwrap();
        let mut token = None;
        while let Some(batch) = first.next().await {
            token = Some(Arc::new(batch.unwrap().token()));
        }
        let (_, _, error) = run(&broken, of_rank(None, token)).await;
        assert_eq!(error, None);
    }
    let (rows, stats, error) = replay(folder.path(), &broken).await;
    assert_eq!((rows.len(), stats.skipped, error), (0, 4, None));
}
