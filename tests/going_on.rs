//! Endless runs and resumed runs: across the end of an epoch, with fewer batches than ranks, over
//! joined or damaged data, and from invented tokens.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use common::batches_of_p as run;
use forebay::{Batch, BatchName, RunConfig, RunInternals, Session, Token, WorkerStride};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

/// Writes a JSON file with `rows` rows. Each has a number `id`, from 0, and `value`, the result of
/// `shown(id)`.
fn table(folder: &Path, name: &str, rows: u64, shown: impl Fn(u64) -> u64) {
    let mut lines = String::new();
    for id in 0..rows {
        writeln!(lines, r#"{{"id": {id}, "value": {}}}"#, shown(id)).unwrap();
    }
    std::fs::write(folder.join(format!("{name}.json")), lines).unwrap();
}

async fn session(folder: &Path, query: &str) -> Session {
    let session = Session::new();
    for name in ["t", "k"] {
        let file = folder.join(format!("{name}.json"));
        if file.exists() {
            let sql = format!(
                "CREATE EXTERNAL TABLE {name} STORED AS JSON LOCATION '{}'",
                file.display()
            );
            session.execute(&sql).await.unwrap();
        }
    }
    let sql = format!("CREATE PIPELINE p AS {query}");
    session.execute(&sql).await.unwrap();
    session
}

fn after(token: Token) -> RunConfig {
    RunConfig {
        resume: Some(Arc::new(token)),
        ..RunConfig::default()
    }
}

fn of_rank(rank: u64, world: u64, resume: Option<&Token>) -> RunConfig {
    RunConfig {
        rank,
        world,
        resume: resume.map(|token| Arc::new(token.clone())),
        ..RunConfig::default()
    }
}

fn shown(batches: &[Batch]) -> Vec<(u64, u64, RecordBatch)> {
    let batches = batches.iter();
    batches
        .map(|b| (b.epoch, b.step, b.batch.clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_stream_resumes_at_the_end_of_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 12, |id| id);
    for filter in ["", " WHERE id >= 0"] {
        let query = format!("SELECT id FROM t{filter} BATCH 4 REPEAT");
        let session = session(folder.path(), &query).await;
        let whole = run(&session, RunConfig::default(), 10).await.unwrap();
        for at in 0..6 {
            let rest = run(&session, after(whole[at].token()), 4).await.unwrap();
            assert_eq!(shown(&rest), shown(&whole[at + 1..at + 5]));
        }
        // An epoch has three batches for four ranks. The last rank has only empty batches, but
        // takes the same number of steps.
        for rank in 0..4 {
            let steps = run(&session, of_rank(rank, 4, None), 3).await.unwrap();
            let rows: Vec<usize> = steps.iter().map(|b| b.batch.num_rows()).collect();
            assert_eq!(rows, [if rank < 3 { 4 } else { 0 }; 3]);
        }
        for turn in 0..4 {
            let mut config = RunConfig::default();
            config.internals.stride = WorkerStride { first: turn, of: 4 };
            let given = run(&session, config, 2).await.unwrap();
            let every: Vec<Batch> = { whole.iter().skip(turn as usize) }
                .step_by(4)
                .take(2)
                .cloned()
                .collect();
            assert_eq!(shown(&given), shown(&every));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_stream_without_rows_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 12, |id| id);
    for query in [
        "SELECT id FROM t WHERE id > 20 BATCH 4 REPEAT",
        "SELECT id FROM t BATCH 20 DROP REMAINDER REPEAT",
        "SELECT id FROM t SKIP 20 BATCH 4 REPEAT CONTINUOUS",
    ] {
        let session = session(folder.path(), query).await;
        for world in [1, 2] {
            let error = run(&session, of_rank(0, world, None), 1).await;
            let error = error.unwrap_err();
            assert!(error.contains("REPEAT without end"), "{query}: {error}");
        }
    }
}

/// A random filter may leave too few rows for a batch in one epoch, but enough in another.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_stream_may_have_an_epoch_without_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 20, |id| id);
    let query = "SELECT id FROM t WHERE random_bool(0.4) SEED 2 BATCH 8 DROP REMAINDER REPEAT";
    let session = session(folder.path(), query).await;
    for world in [1, 2] {
        let batches = run(&session, of_rank(0, world, None), 4).await.unwrap();
        assert_eq!(batches.len(), 4);
        let epochs: Vec<u64> = batches.iter().map(|batch| batch.epoch).collect();
        assert!(
            epochs[3] > 3,
            "{world} ranks: every epoch had a batch, {epochs:?}"
        );
    }
}

/// Failures after the last batch of a limited run are not reported, whatever the number of rows in
/// a segment.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_ends_a_run_before_later_failures() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 60, |id| id);
    for filter in ["", "WHERE id >= 0"] {
        let query = format!("SELECT 100 / (id - 25) AS x FROM t {filter} BATCH 10");
        let session = session(folder.path(), &query).await;
        for segment_rows in [1, 7, 1_000] {
            let config = RunConfig {
                limit_batches: Some(2),
                internals: RunInternals {
                    segment_rows: Some(segment_rows),
                    ..RunInternals::default()
                },
                ..RunConfig::default()
            };
            let batches = run(&session, config.clone(), usize::MAX).await.unwrap();
            assert_eq!(batches.len(), 2);
            let config = RunConfig {
                limit_batches: Some(3),
                ..config
            };
            let error = run(&session, config, usize::MAX).await.unwrap_err();
            assert!(error.contains("row 25"), "{error}");
        }
    }
}

/// If MIX first draws from an input late in an epoch, the packs and buckets of the epoch are the
/// same in a run that begins with this epoch and in one that begins earlier.
#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_is_the_same_wherever_a_run_begins() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 90, |id| 1 + id * 7 % 9);
    table(folder.path(), "k", 9, |id| 1 + id);
    let query = "SELECT id, value FROM MIX (t WEIGHT 0.95, k WEIGHT 0.05)
                 BUCKET BY value BOUNDARIES (3, 6) BATCH 4 REPEAT 3 OPTIONS (horizon = 1)";
    let session = session(folder.path(), query).await;
    let whole = run(&session, RunConfig::default(), usize::MAX)
        .await
        .unwrap();
    let of = |epoch: u64| whole.iter().filter(move |batch| batch.epoch == epoch);
    for epoch in 0..3 {
        let config = RunConfig {
            first_epoch: epoch,
            epochs: Some(1),
            ..RunConfig::default()
        };
        let alone = run(&session, config, usize::MAX).await.unwrap();
        let expected: Vec<Batch> = of(epoch).cloned().collect();
        assert_eq!(shown(&alone), shown(&expected));
        for batch in of(epoch).step_by(3) {
            let name = BatchName::Before(Box::new(batch.token()));
            let found = session
                .which("p", RunConfig::default(), name)
                .await
                .unwrap();
            assert_eq!(found.batch, batch.batch);
        }
    }
    let beginning = session.run("p", RunConfig::default()).await.unwrap();
    let again = run(&session, after(beginning.beginning().clone()), usize::MAX).await;
    assert_eq!(shown(&again.unwrap()), shown(&whole));
}

/// Two ranks share five batches. In the last step, one rank repeats its previous batch, since it
/// has no batch of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_repeats_its_batch_resumes() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 19, |id| id * 7 % 19);
    for (query, world) in [
        (
            "SELECT id FROM t BATCH 4 REPEAT 2 OPTIONS (equal_steps = 'pad')",
            2,
        ),
        (
            "SELECT id FROM t WHERE value < 18 BATCH 4 REPEAT 2 OPTIONS (equal_steps = 'pad')",
            2,
        ),
        (
            "SELECT id FROM t BATCH 4 REPEAT 2 CONTINUOUS OPTIONS (equal_steps = 'pad')",
            3,
        ),
        ("SELECT id FROM t BATCH 6 GLOBAL PAD REMAINDER REPEAT 2", 3),
    ] {
        let session = session(folder.path(), query).await;
        for rank in 0..world {
            let whole = run(&session, of_rank(rank, world, None), usize::MAX).await;
            let whole = whole.unwrap();
            let repeats = whole.windows(2).any(|two| two[0].batch == two[1].batch);
            assert!(
                repeats || rank == 0 || !query.contains("equal"),
                "{query}: rank {rank}"
            );
            for at in 0..whole.len() {
                let config = of_rank(rank, world, Some(&whole[at].token()));
                let rest = run(&session, config, usize::MAX).await.unwrap();
                assert_eq!(
                    shown(&rest),
                    shown(&whole[at + 1..]),
                    "{query}: {rank} from {at}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_batch_before_a_token_is_found_even_in_a_short_step() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 19, |id| id);
    let session = session(folder.path(), "SELECT id FROM t BATCH 4").await;
    for rank in 0..2 {
        let batches = run(&session, of_rank(rank, 2, None), usize::MAX).await;
        let batches = batches.unwrap();
        assert_eq!(batches.len(), 3);
        for batch in batches {
            let name = BatchName::Before(Box::new(batch.token()));
            let found = session.which("p", of_rank(rank, 2, None), name).await;
            match batch.batch.num_rows() {
                0 => assert!(
                    found
                        .unwrap_err()
                        .to_string()
                        .contains("rank 1 of 2 has no batch")
                ),
                _ => assert_eq!(found.unwrap().batch, batch.batch),
            }
        }
    }
}

/// The token belongs to the contents of the right side of a join, too, since they change the
/// stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_right_side_is_changed_data() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 40, |id| id);
    table(folder.path(), "k", 20, |id| id);
    let cache = folder.path().join("cache");
    let query = format!(
        "SELECT t.id FROM t JOIN k ON t.id = k.id BATCH 4 CACHE OFF OPTIONS (cache_dir = '{}')",
        cache.display()
    );
    let whole = session(folder.path(), &query).await;
    let of_two = run(&whole, of_rank(0, 2, None), usize::MAX).await.unwrap();
    let token = of_two[0].token();
    assert_eq!(of_two.len(), 3);
    table(folder.path(), "k", 8, |id| id);
    let changed = session(folder.path(), &query).await;
    let of_two = run(&changed, of_rank(0, 2, None), usize::MAX)
        .await
        .unwrap();
    assert_eq!(of_two.len(), 1, "counts of other data were taken");
    let error = run(&changed, after(token), 1).await.unwrap_err();
    assert!(error.contains("the data has changed"), "{error}");
}

/// Row counts in a shared cache that are valid for one number of ranks are not used for another
/// number.
#[tokio::test(flavor = "multi_thread")]
async fn worlds_that_share_a_cache_count_for_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows");
    std::fs::create_dir(&rows).unwrap();
    for file in 0..100 {
        let mut lines = String::new();
        for row in 0..10 {
            let value = (file * 31 + row * 7) % 97;
            writeln!(lines, r#"{{"id": {}, "value": {value}}}"#, file * 10 + row).unwrap();
        }
        std::fs::write(rows.join(format!("{file:03}.json")), lines).unwrap();
    }
    let query = format!(
        "SELECT id FROM json('{}/*.json') WHERE value * value % 13 < 6 SHUFFLE WITHIN 100 ROWS SEED 1 BATCH 8 CACHE OFF
         OPTIONS (cache_dir = '{}')",
        rows.display(),
        folder.path().join("cache").display()
    );
    let session = session(folder.path(), &query).await;
    let whole = run(&session, RunConfig::default(), usize::MAX)
        .await
        .unwrap();
    for world in [2, 3, 4, 8, 2] {
        let mut ranks = Vec::new();
        for rank in 0..world {
            let batches = run(&session, of_rank(rank, world, None), usize::MAX).await;
            ranks.push(batches.unwrap());
        }
        let steps = 0..ranks[0].len();
        let dealt = steps.flat_map(|step| ranks.iter().map(move |rank| rank[step].batch.clone()));
        let dealt: Vec<RecordBatch> = dealt.filter(|batch| batch.num_rows() > 0).collect();
        let expected: Vec<RecordBatch> = whole.iter().map(|batch| batch.batch.clone()).collect();
        assert_eq!(dealt, expected, "{world} ranks");
    }
}

/// Writes a Parquet file of two row groups, and damages the second one.
fn damaged(file: &Path) {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let rows: Vec<i64> = (0..20_000).map(|i| i * 7_919 % 100_003).collect();
    let batch =
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(rows))]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10_000));
    let sink = std::fs::File::create(file).unwrap();
    let mut writer = ArrowWriter::try_new(sink, schema, Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    let written = writer.close().unwrap();
    let second = written.row_group(1).column(0);
    let start = second.byte_range().0 as usize;
    let mut bytes = std::fs::read(file).unwrap();
    bytes[start..start + 64].fill(0xff);
    std::fs::write(file, bytes).unwrap();
}

/// Damage after the last row that TAKE keeps is not reported, in any epoch.
#[tokio::test(flavor = "multi_thread")]
async fn damage_after_the_last_row_ends_no_other_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.parquet");
    damaged(&file);
    let from = format!("SELECT id FROM parquet('{}') WHERE id >= 0", file.display());
    let session = session(folder.path(), &format!("{from} TAKE 100 BATCH 10 REPEAT 3")).await;
    let batches = run(&session, RunConfig::default(), usize::MAX)
        .await
        .unwrap();
    assert_eq!(batches.len(), 30);
    let sql = format!("CREATE OR REPLACE PIPELINE p AS {from} TAKE 12000 BATCH 10 REPEAT 3");
    session.execute(&sql).await.unwrap();
    let error = run(&session, RunConfig::default(), usize::MAX)
        .await
        .unwrap_err();
    assert!(error.contains("t.parquet"), "{error}");
}

/// The number of steps is known before any batch is delivered, even with packs, buckets and mixes.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_steps_is_known_in_advance() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 90, |id| 1 + id * 7 % 9);
    table(folder.path(), "k", 40, |id| 1 + id * 5 % 7);
    for (query, alone) in [
        (
            "SELECT id FROM MIX (t WEIGHT 2, k WEIGHT 1) SHUFFLE GLOBALLY BATCH 7 REPEAT 3",
            true,
        ),
        (
            "SELECT id FROM MIX (t WEIGHT 2, k WEIGHT 1, stop => 'longest') BATCH 7 REPEAT 3 CONTINUOUS",
            true,
        ),
        (
            "SELECT id, value FROM t BUCKET BY value BOUNDARIES (3, 6) BATCH 7 REPEAT 2",
            false,
        ),
        (
            "SELECT id, value FROM t WHERE id % 4 > 0 SHUFFLE GLOBALLY BATCH BY TOKENS 40 ON value REPEAT 2",
            false,
        ),
        ("SELECT id FROM t BATCH 7 REPEAT 2", true),
    ] {
        let session = session(folder.path(), query).await;
        for world in 1..4 {
            let config = of_rank(world - 1, world, None);
            let steps = session.steps("p", config.clone()).await.unwrap();
            let batches = run(&session, config.clone(), usize::MAX).await.unwrap();
            let explained = session.explain("p", config, false).await.unwrap();
            let first = explained.to_json()["steps_per_rank_in_the_first_epoch"].as_u64();
            if world == 1 && !alone {
                assert_eq!((steps, first), (None, None), "{query}");
                continue;
            }
            assert_eq!(steps, Some(batches.len() as u64), "{query}: {world} ranks");
            let span = if query.contains("CONTINUOUS") {
                batches.len()
            } else {
                batches.iter().filter(|batch| batch.epoch == 0).count()
            };
            assert_eq!(first, Some(span as u64), "{query}: {world} ranks");
            if world > 1 {
                assert!(
                    explained.to_string().contains("ranks, proven equal"),
                    "{explained}"
                );
            }
        }
    }
}

/// A run from an invented token is refused or delivers batches. It never panics or hangs.
#[tokio::test(flavor = "multi_thread")]
async fn an_invented_token_is_refused_or_resumed() {
    let folder = tempfile::tempdir().unwrap();
    table(folder.path(), "t", 40, |id| id);
    for query in [
        "SELECT id FROM t SHUFFLE WITHIN 10 ROWS BATCH 4 REPEAT 3",
        "SELECT id FROM t WHERE value > 3 BATCH 4 REPEAT 3",
    ] {
        let session = session(folder.path(), query).await;
        let batches = run(&session, RunConfig::default(), 3).await.unwrap();
        let token = batches[2].token();
        let good = serde_json::to_value(&token).unwrap();
        // An attacker can recompute the checksum, and so can change any field of the cursor.
        let made_up = |bad: &serde_json::Value| Token {
            cursor: serde_json::from_value(bad["cursor"].clone()).unwrap(),
            ..token.clone()
        };
        let huge = serde_json::json!(u64::MAX);
        for (place, value) in [
            ("/cursor/epoch", huge.clone()),
            ("/cursor/epoch", serde_json::json!(3)),
            ("/cursor/step", huge.clone()),
            ("/cursor/batches", huge.clone()),
            ("/cursor/rows", huge.clone()),
            ("/cursor/arms/0/window", serde_json::json!(900)),
            ("/cursor/arms/0/row", serde_json::json!([1_000_000, 1])),
            ("/cursor/arms/0/row", serde_json::json!([3, 7])),
            ("/cursor/arms", serde_json::json!([])),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(place).unwrap() = value.clone();
            let error = run(&session, after(made_up(&bad)), 1).await.unwrap_err();
            assert!(error.contains("token"), "{query}: {place} {value}: {error}");
        }
        // This carry (the token's record of rows in open groups) names nine rows in one open group,
        // although a batch has only four rows. It names no open packs.
        let mut bad = good.clone();
        let carry = [&[0_u8, 1, 0, 9][..], &[1, 0].repeat(9), &[0]].concat();
        use base64::Engine as _;
        let carry = base64::prelude::BASE64_STANDARD_NO_PAD.encode(carry);
        bad["cursor"]["carry"] = serde_json::json!(carry);
        bad["cursor"]["carry_passes"] = serde_json::json!([[0, 0]]);
        let token = made_up(&bad);
        assert_eq!(token.carried().unwrap(), 9);
        let error = run(&session, after(token), 1).await.unwrap_err();
        assert!(error.contains("carries more rows"), "{query}: {error}");
    }
}
