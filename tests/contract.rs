//! The sample-stream contract: the pipeline of the design document has the same digest under all
//! settings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::fs::File;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use common::{batches, digest, keys, outcome, photos};
use forebay::builder::{WindowSize, call, col, images, lit};
use forebay::clauses::{OnError, Optimize};
use forebay::{Pipeline, RunConfig, RunInternals, Session};

const CLAUSES: &str = "SHUFFLE WITHIN 20 ROWS SEED 42 BATCH 16 DROP REMAINDER REPEAT 3 \
                       OPTIONS (on_error = 'replace', relax = 'none')";

/// Creates a session with the pipeline of the design document over 62 small photos in 3 classes, of
/// which one file is empty and one is broken.
async fn session() -> (tempfile::TempDir, Session) {
    let dir = tempfile::tempdir().unwrap();
    photos(dir.path(), 60, 3);
    std::fs::write(
        dir.path().join("class0/broken.jpg"),
        [0xff, 0xd8, 0xff, 0xe0, 1, 2, 3],
    )
    .unwrap();
    std::fs::write(dir.path().join("class1/empty.jpg"), []).unwrap();
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{}';
         CREATE PIPELINE train AS
           SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)),
                                   'imagenet') AS pixels
           FROM photos WHERE octet_length(image) > 0 {CLAUSES};
         CREATE PIPELINE counted AS
           SELECT label, random_hflip(resize(decode_image(image), 24, 24)) AS pixels
           FROM photos SHUFFLE WITHIN 20 ROWS SEED 7 BATCH 16 REPEAT 2 OPTIONS (on_error = 'skip');
         CREATE PIPELINE global AS
           SELECT label, path FROM photos SHUFFLE GLOBALLY BATCH 16 GLOBAL REPEAT 2;",
        dir.path().display()
    );
    session.execute(&sql).await.unwrap();
    (dir, session)
}

fn config() -> RunConfig {
    RunConfig::default()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_digest_for_every_setting() {
    let (_dir, session) = session().await;
    let expected = outcome(&session, "train", config()).await.unwrap();
    let mebi = |n: u64| Some(n << 20);
    let settings = [
        RunConfig {
            threads: Some(1),
            ..config()
        },
        RunConfig {
            threads: Some(2),
            ..config()
        },
        RunConfig {
            threads: Some(5),
            ..config()
        },
        RunConfig {
            memory_limit: mebi(20),
            ..config()
        },
        RunConfig {
            memory_limit: mebi(64),
            ..config()
        },
        RunConfig {
            memory_limit: mebi(400),
            ..config()
        },
        RunConfig {
            optimize: Some(Optimize::Off),
            ..config()
        },
        RunConfig {
            optimize: Some(Optimize::Default),
            ..config()
        },
        RunConfig {
            internals: RunInternals {
                segment_rows: Some(1),
                ..RunInternals::default()
            },
            ..config()
        },
        RunConfig {
            internals: RunInternals {
                segment_rows: Some(7),
                ..RunInternals::default()
            },
            threads: Some(3),
            ..config()
        },
    ];
    for setting in settings {
        assert_eq!(
            outcome(&session, "train", setting.clone()).await.unwrap(),
            expected,
            "{setting:?}"
        );
    }
}

/// Later epochs decode with the seek indexes that the first one kept, unless the option is off or the
/// pipeline reads whole photos.
#[tokio::test(flavor = "multi_thread")]
async fn seek_indexes_are_kept_and_change_no_stream() {
    let (dir, session) = session().await;
    let off = format!(
        "CREATE PIPELINE off AS
           SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)),
                                   'imagenet') AS pixels
           FROM photos WHERE octet_length(image) > 0 {}",
        CLAUSES.replace("OPTIONS (", "OPTIONS (index = 'off', ")
    );
    session.execute(&off).await.unwrap();
    let expected = outcome(&session, "off", config()).await.unwrap();
    assert_eq!(
        outcome(&session, "train", config()).await.unwrap(),
        expected
    );
    let mut bytes = Vec::new();
    for pipeline in ["train", "off", "counted"] {
        let explained = session.explain(pipeline, config(), true).await.unwrap();
        bytes.push(explained.to_json()["analyze"]["seek_index_bytes"].as_u64());
    }
    // 60 indexes of a few points.
    assert!(bytes[0].is_some_and(|bytes| bytes > 60 * 64), "{bytes:?}");
    assert_eq!(bytes[1..], [None, None]);
    drop(dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn builder_and_sql_mean_the_same() {
    let (dir, session) = session().await;
    let decoded = call("decode_image", [col("image")]);
    let cropped = call("random_resized_crop", [decoded, lit(24), lit(24)]);
    let pixels = call(
        "normalize",
        [call("random_hflip", [cropped]), lit("imagenet")],
    );
    let builder = Pipeline::from(images(dir.path().to_str().unwrap()).unwrap())
        .filter(call("octet_length", [col("image")]).gt(lit(0)))
        .with_column("pixels", pixels)
        .select([col("label"), col("pixels")])
        .shuffle(WindowSize::rows(20), 42)
        .batch(16)
        .drop_remainder()
        .repeat(3)
        .on_error(OnError::Replace);
    session.register("built", builder).await.unwrap();
    let hash = async |name| {
        let explained = session
            .explain(name, config(), false)
            .await
            .unwrap()
            .to_json();
        explained["semantic_hash"].as_str().unwrap().to_owned()
    };
    assert_eq!(hash("built").await, hash("train").await);
    assert_ne!(hash("built").await, hash("counted").await);
    assert_eq!(
        outcome(&session, "built", config()).await.unwrap(),
        outcome(&session, "train", config()).await.unwrap()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_seed_or_epoch_gives_another_stream() {
    let (_dir, session) = session().await;
    let base = RunConfig {
        epochs: Some(1),
        ..config()
    };
    let expected = outcome(&session, "train", base.clone()).await.unwrap();
    let seed = RunConfig {
        seed: Some(43),
        ..base.clone()
    };
    assert_ne!(outcome(&session, "train", seed).await.unwrap(), expected);
    let epoch = RunConfig {
        first_epoch: 1,
        ..base
    };
    assert_ne!(outcome(&session, "train", epoch).await.unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_epoch_holds_every_row_once() {
    let (_dir, session) = session().await;
    let all = batches(&session, "global", config()).await.unwrap();
    for epoch in 0..2 {
        let of_epoch: Vec<_> = all.iter().filter(|b| b.epoch == epoch).cloned().collect();
        let mut keys = keys(&of_epoch);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 62);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_partition_the_global_stream_in_equal_steps() {
    let (_dir, session) = session().await;
    for name in ["train", "counted", "global"] {
        let whole = batches(&session, name, config()).await.unwrap();
        let mut expected = keys(&whole);
        expected.sort();
        for world in [2, 3, 8] {
            let mut union = Vec::new();
            let mut steps = Vec::new();
            let mut by_rank = Vec::new();
            for rank in 0..world {
                let config = RunConfig {
                    rank,
                    world,
                    ..config()
                };
                let of_rank = batches(&session, name, config).await.unwrap();
                steps.push(of_rank.len());
                union.extend(keys(&of_rank));
                by_rank.push(of_rank);
            }
            assert!(
                steps.iter().all(|s| *s == steps[0]),
                "{name} at {world}: {steps:?}"
            );
            union.sort();
            // With `on_error = 'replace'`, the rows include those that replace failed rows.
            assert_eq!(union, expected, "{name} at world {world}");
            if name == "global" {
                for (step, batch) in whole.iter().enumerate() {
                    let parts: Vec<_> = by_rank.iter().map(|b| b[step].clone()).collect();
                    assert_eq!(keys(&parts), keys(std::slice::from_ref(batch)));
                }
            }
            if name == "counted" {
                // Batch number `b` of the epoch, counted over all ranks, belongs to rank `b mod
                // world`.
                for (index, batch) in whole.iter().filter(|b| b.epoch == 0).enumerate() {
                    let of_rank = &by_rank[index % world as usize][index / world as usize];
                    assert_eq!(
                        digest(std::slice::from_ref(of_rank)),
                        digest(std::slice::from_ref(batch))
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rows_follow_the_policy_and_name_their_file() {
    let (_dir, session) = session().await;
    let sql = |policy: &str| {
        format!(
            "CREATE OR REPLACE PIPELINE p AS SELECT resize(decode_image(image), 8, 8) AS pixels, label
             FROM photos BATCH 10 OPTIONS (on_error = '{policy}')"
        )
    };
    session.execute(&sql("fail")).await.unwrap();
    let message = outcome(&session, "p", config()).await.unwrap_err();
    assert!(
        message.contains("class0/broken.jpg, row 0: decode_image"),
        "{message}"
    );

    session.execute(&sql("skip")).await.unwrap();
    let skipped = batches(&session, "p", config()).await.unwrap();
    let sizes: Vec<_> = skipped.iter().map(|b| b.batch.num_rows()).collect();
    // Two of the 62 rows fail. Each makes its batch one row shorter; rows of later batches do not
    // move up.
    assert_eq!(sizes.iter().sum::<usize>(), 60);
    assert_eq!(sizes.len(), 7);

    session.execute(&sql("replace")).await.unwrap();
    let replaced = batches(&session, "p", config()).await.unwrap();
    assert_eq!(
        replaced.iter().map(|b| b.batch.num_rows()).sum::<usize>(),
        62
    );

    session.execute(&sql("null")).await.unwrap();
    let mut run = session.run("p", config()).await.unwrap();
    let (mut rows, mut nulls) = (0, 0);
    while let Some(batch) = run.next().await {
        let batch = batch.unwrap().batch;
        rows += batch.num_rows();
        nulls += batch.column(0).null_count();
        assert_eq!(batch.column(1).null_count(), 0);
    }
    assert_eq!((rows, nulls, run.stats().nulled), (62, 2, 2));
    assert_eq!(run.stats().failures.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_an_unneeded_slot_does_not_surface() {
    let (_dir, session) = session().await;
    session
        .execute(
            "CREATE PIPELINE unused AS SELECT label FROM
               (SELECT label, decode_image(image) AS pixels FROM photos) AS t BATCH 100;
             CREATE PIPELINE filtered AS SELECT label, image_width(image) AS w FROM photos
               WHERE path NOT LIKE '%broken%' AND image_width(image) > 1 AND octet_length(image) > 0
               BATCH 100",
        )
        .await
        .unwrap();
    for optimize in [Optimize::Off, Optimize::Default] {
        let config = RunConfig {
            optimize: Some(optimize),
            ..config()
        };
        assert_eq!(
            keys(&batches(&session, "unused", config.clone()).await.unwrap()).len(),
            62
        );
        assert_eq!(
            keys(&batches(&session, "filtered", config).await.unwrap()).len(),
            60
        );
    }
}

/// The pipeline of the design document over real photos, in the folder that the environment
/// variable `FOREBAY_TEST_DATA` names.
#[tokio::test(flavor = "multi_thread")]
async fn real_photos_give_one_stream_at_every_world_size() {
    let Some(data) = std::env::var_os("FOREBAY_TEST_DATA") else {
        println!("skipped: FOREBAY_TEST_DATA is not set");
        return;
    };
    for folder in ["photos/clothing_small/train", "photos/imagenet_sample"] {
        let path = std::path::Path::new(&data).join(folder);
        let session = Session::new();
        let scope = |scope: &str| {
            format!(
                "CREATE OR REPLACE PIPELINE p AS
                   SELECT label, random_hflip(random_resized_crop(decode_image(image), 32, 32)) AS pixels
                   FROM images('{}') WHERE octet_length(image) > 0
                   SHUFFLE WITHIN 10000 ROWS SEED 42 BATCH 32 {scope} DROP REMAINDER
                   OPTIONS (on_error = 'replace')",
                path.display()
            )
        };
        for clause in ["", "GLOBAL"] {
            session.execute(&scope(clause)).await.unwrap();
            let whole = batches(&session, "p", config()).await.unwrap();
            let mut expected = keys(&whole);
            expected.sort();
            for world in [1, 2, 3, 8] {
                let mut union = Vec::new();
                let mut by_rank = Vec::new();
                for rank in 0..world {
                    let config = RunConfig {
                        rank,
                        world,
                        ..config()
                    };
                    by_rank.push(batches(&session, "p", config).await.unwrap());
                    union.extend(keys(&by_rank[rank as usize]));
                }
                assert!(by_rank.iter().all(|b| b.len() == by_rank[0].len()));
                union.sort();
                assert_eq!(union, expected, "{folder} {clause} at world {world}");
                if clause == "GLOBAL" {
                    for (step, batch) in whole.iter().enumerate() {
                        let parts: Vec<_> = by_rank.iter().map(|b| b[step].clone()).collect();
                        assert_eq!(keys(&parts), keys(std::slice::from_ref(batch)));
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remainders_are_kept_dropped_or_padded_and_may_cross_epochs() {
    let (_dir, session) = session().await;
    let sizes = async |clauses: &str, config: RunConfig| {
        let sql = format!("CREATE OR REPLACE PIPELINE p AS SELECT path FROM photos {clauses}");
        session.execute(&sql).await.unwrap();
        let batches = batches(&session, "p", config).await.unwrap();
        batches
            .iter()
            .map(|b| b.batch.num_rows())
            .collect::<Vec<_>>()
    };
    // The data has 62 rows.
    assert_eq!(
        sizes("BATCH 20 REPEAT 2", config()).await,
        [20, 20, 20, 2, 20, 20, 20, 2]
    );
    assert_eq!(
        sizes("BATCH 20 DROP REMAINDER REPEAT 2", config()).await,
        [20; 6]
    );
    assert_eq!(sizes("BATCH 20 PAD REMAINDER", config()).await, [20; 4]);
    let continuous = "BATCH 20 REPEAT 2 CONTINUOUS";
    assert_eq!(
        sizes(continuous, config()).await,
        [20, 20, 20, 20, 20, 20, 4]
    );
    assert_eq!(
        sizes("SKIP 2 TAKE 30 BATCH 20 REPEAT 2", config()).await,
        [20, 10, 20, 10]
    );
    // Three ranks share four batches. In the last step, two ranks have no rows or, with padding,
    // repeated rows.
    let rank = |rank| RunConfig {
        rank,
        world: 3,
        ..config()
    };
    assert_eq!(sizes("BATCH 20", rank(0)).await, [20, 2]);
    assert_eq!(sizes("BATCH 20", rank(1)).await, [20, 0]);
    assert_eq!(sizes("BATCH 20 PAD REMAINDER", rank(1)).await, [20, 20]);
    assert_eq!(sizes("BATCH 20 GLOBAL", rank(1)).await, [7, 7, 7, 1]);
    let error = outcome(
        &session,
        "p",
        RunConfig {
            rank: 3,
            world: 3,
            ..config()
        },
    )
    .await;
    assert!(error.unwrap_err().contains("ranks count from 0"));
}

/// A global shuffle stages its rows only once for all epochs, but each epoch has its own order. So
/// an epoch must not depend on the epochs before it.
#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_is_the_same_alone_and_after_others() {
    let dir = tempfile::tempdir().unwrap();
    common::parquet(&dir.path().join("t.parquet"), &common::table(300), 40);
    let session = Session::new();
    // Later epochs take packed rows from memory if they are shuffled within windows.
    let orders = ["GLOBALLY", "WITHIN 100 ROWS"];
    let filters = ["", "WHERE d > 3"];
    for (order, filter) in orders
        .iter()
        .flat_map(|order| filters.map(|filter| (order, filter)))
    {
        let sql = format!(
            "CREATE OR REPLACE PIPELINE p AS SELECT id, d, random_uniform() AS u FROM parquet('{}') {filter}
             SHUFFLE {order} SEED 5 BATCH 32 REPEAT 3",
            dir.path().join("t.parquet").display()
        );
        session.execute(&sql).await.unwrap();
        let all = batches(&session, "p", config()).await.unwrap();
        for epoch in 0..3 {
            let of_run: Vec<_> = all.iter().filter(|b| b.epoch == epoch).cloned().collect();
            let alone = RunConfig {
                first_epoch: epoch,
                epochs: Some(1),
                ..config()
            };
            let alone = batches(&session, "p", alone).await.unwrap();
            assert_eq!(digest(&of_run), digest(&alone), "epoch {epoch}");
            assert_eq!(keys(&of_run), keys(&alone));
        }
    }
}

/// A window may have more splits than a segment remembers while it finds its rows.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_many_splits_keep_their_values() {
    const ROWS: i64 = 1500;
    let dir = tempfile::tempdir().unwrap();
    common::parquet(&dir.path().join("t.parquet"), &common::table(ROWS), 2);
    let session = Session::new();
    for (filter, least) in [("", 0), ("WHERE d > 3", 4)] {
        let sql = format!(
            "CREATE OR REPLACE PIPELINE p AS SELECT id, d FROM parquet('{}') {filter}
             SHUFFLE GLOBALLY SEED 5 BATCH 400",
            dir.path().join("t.parquet").display()
        );
        session.execute(&sql).await.unwrap();
        let mut ids = Vec::new();
        for batch in batches(&session, "p", config()).await.unwrap() {
            let column = |i: usize| batch.batch.column(i).as_primitive::<Int64Type>().clone();
            for (id, d) in column(0).values().iter().zip(column(1).values()) {
                assert_eq!(id % 13, *d);
                ids.push(*id);
            }
        }
        assert!(!ids.is_sorted());
        ids.sort_unstable();
        let expected: Vec<i64> = (0..ROWS).filter(|id| id % 13 >= least).collect();
        assert_eq!(ids, expected);
    }
}

/// Segments are read while earlier segments are still being computed. A read error ends the run
/// only after all rows before the damage were delivered.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_reading_comes_after_the_rows_before_it() {
    // Without SHUFFLE, each record batch of the file is a window.
    const WINDOW: i64 = 8192;
    const ROWS: i64 = 4 * WINDOW;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let schema = common::table(1).schema();
    let mut writer =
        arrow::ipc::writer::FileWriter::try_new(File::create(&path).unwrap(), &schema).unwrap();
    for at in (0..ROWS).step_by(WINDOW as usize) {
        writer
            .write(&common::table(ROWS).slice(at as usize, WINDOW as usize))
            .unwrap();
    }
    writer.finish().unwrap();
    // The strings of the last record batch are no longer valid UTF-8.
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.windows(2).rposition(|pair| pair == b"n5").unwrap();
    bytes[last + 1] = 0xff;
    std::fs::write(&path, bytes).unwrap();

    let session = Session::new();
    let sql = format!(
        "CREATE PIPELINE p AS SELECT id, name FROM arrow('{0}') BATCH 4096;
         CREATE PIPELINE within AS SELECT id, name FROM arrow('{0}') WHERE id >= 0 TAKE {1} BATCH 4096;
         CREATE PIPELINE beyond AS SELECT id, name FROM arrow('{0}') WHERE id >= 0 TAKE {2} BATCH 4096;",
        path.display(),
        WINDOW * 5 / 2,
        WINDOW * 7 / 2
    );
    session.execute(&sql).await.unwrap();
    for threads in [1, 2, 8] {
        // An error after the last row that TAKE keeps is not reported, although rows are read
        // ahead.
        for (pipeline, expected) in [
            ("p", 3 * WINDOW),
            ("within", WINDOW * 5 / 2),
            ("beyond", 3 * WINDOW),
        ] {
            let config = RunConfig {
                threads: Some(threads),
                internals: RunInternals {
                    segment_rows: Some(4096),
                    ..RunInternals::default()
                },
                ..config()
            };
            let mut run = session.run(pipeline, config).await.unwrap();
            let (mut rows, mut failure) = (0, None);
            while let Some(batch) = run.next().await {
                match batch {
                    Ok(batch) => rows += batch.batch.num_rows() as i64,
                    Err(error) => failure = Some(error.to_string()),
                }
            }
            assert_eq!(rows, expected, "{pipeline} {threads} {failure:?}");
            let fails = pipeline != "within";
            assert_eq!(failure.is_some_and(|why| why.contains("t.arrow")), fails);
        }
    }
}
