//! Tests of the requests that sources send, and of their bytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use arrow::ipc::writer::FileWriter;
use arrow_avro::writer::AvroWriter;
use forebay::{Batch, RunConfig, RunInternals, Session};
use tempfile::TempDir;

use crate::common::{digest, parquet, photos, table};
use crate::draw::Draw;
use crate::server::{BUCKET, Seen, Server};
use crate::tar::{gzip, tar};

/// A bucket whose files `write` writes.
pub(crate) fn bucket(write: impl FnOnce(PathBuf)) -> (TempDir, Server) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(BUCKET);
    fs::create_dir(&folder).unwrap();
    write(folder.clone());
    let server = Server::new(&folder);
    (root, server)
}

/// Runs the pipeline `p` that `sql` defines, to its end.
pub(crate) async fn run(session: &Session, sql: &str) -> Result<Vec<Batch>, String> {
    run_with(session, sql, RunConfig::default()).await
}

async fn run_with(session: &Session, sql: &str, config: RunConfig) -> Result<Vec<Batch>, String> {
    session.load(sql).await.map_err(|error| error.to_string())?;
    let run = session.run("p", config).await;
    let mut run = run.map_err(|error| error.to_string())?;
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        batches.push(batch.map_err(|error| error.to_string())?);
    }
    Ok(batches)
}

/// Returns the digest of the pipeline over the files and over the bucket, and the requests.
async fn both(root: &TempDir, server: &Server, sql: &str) -> (String, String, Vec<Seen>) {
    both_with(root, server, sql, &RunConfig::default()).await
}

async fn both_with(
    root: &TempDir,
    server: &Server,
    sql: &str,
    config: &RunConfig,
) -> (String, String, Vec<Seen>) {
    let at = |data: &str| sql.replace("{data}", data);
    let folder = root.path().join(BUCKET);
    let files = at(folder.to_str().unwrap());
    let files = run_with(&Session::new(), &files, config.clone())
        .await
        .unwrap();
    let objects = run_with(&server.session(), &at("s3://bucket"), config.clone())
        .await
        .unwrap();
    (digest(&files), digest(&objects), server.take())
}

/// The settings of a run that reads the sources in each epoch.
fn rereading() -> RunConfig {
    RunConfig {
        internals: RunInternals {
            is_reread: true,
            ..RunInternals::default()
        },
        ..RunConfig::default()
    }
}

/// Returns how often each range of each object was requested.
fn gets(seen: &[Seen]) -> BTreeMap<(String, Option<String>), usize> {
    let mut gets = BTreeMap::new();
    for of in seen.iter().filter(|of| of.method == "GET" && !of.is_list) {
        *gets.entry((of.key.clone(), of.range.clone())).or_insert(0) += 1;
    }
    gets
}

fn bytes(seen: &[Seen]) -> u64 {
    let gets = seen.iter().filter(|of| of.method == "GET" && !of.is_list);
    gets.map(|of| of.bytes).sum()
}

fn listings(seen: &[Seen]) -> usize {
    seen.iter().filter(|of| of.is_list).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_photo_is_requested_once() {
    let (root, server) = bucket(|folder| photos(&folder.join("photos"), 90, 3));
    let sql = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{data}/photos';
        CREATE PIPELINE p AS SELECT path, label, random_hflip(resize(decode_image(image), 8, 8)) AS x
        FROM photos SHUFFLE WITHIN 50 ROWS SEED 3 BATCH 7";
    let (files, objects, seen) = both(&root, &server, sql).await;
    assert_eq!(files, objects);
    let gets = gets(&seen);
    assert_eq!(gets.len(), 90);
    assert!(
        gets.iter()
            .all(|((_, range), count)| range.is_none() && *count == 1),
        "{gets:?}"
    );
    assert_eq!((listings(&seen), seen.len()), (1, 91));
}

#[tokio::test(flavor = "multi_thread")]
async fn footers_are_read_once_and_row_groups_that_are_excluded_never() {
    let (root, server) = bucket(|folder| {
        fs::create_dir(folder.join("t")).unwrap();
        for (name, start) in [("a", 0), ("b", 3000)] {
            let rows = table(6000).slice(start, 3000);
            parquet(&folder.join(format!("t/{name}.parquet")), &rows, 500);
        }
    });
    let sql = "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{data}/t';
        CREATE PIPELINE p AS SELECT * FROM t SHUFFLE WITHIN 1000 ROWS BATCH 100 REPEAT 2
        OPTIONS (optimize = 'off')";
    let (files, objects, seen) = both(&root, &server, sql).await;
    assert_eq!(files, objects);
    let sizes =
        ["t/a.parquet", "t/b.parquet"].map(|key| fs::metadata(server.file(key)).unwrap().len());
    for (key, size) in ["t/a.parquet", "t/b.parquet"].into_iter().zip(sizes) {
        let end = format!("-{}", size - 1);
        let is_tail = |of: &&Seen| {
            of.key == key && of.range.as_ref().is_none_or(|range| range.ends_with(&end))
        };
        assert_eq!(seen.iter().filter(is_tail).count(), 1, "{key}");
    }
    // Two epochs, and the ends of the files: windows of so few rows are read ahead into the second epoch.
    let most: u64 = sizes.iter().map(|size| 2 * size + (64 << 10)).sum();
    assert!(bytes(&seen) <= most, "{} of {most}", bytes(&seen));
    assert_eq!(listings(&seen), 1);

    // Planning reads some rows, so later epochs tell what an epoch reads: one row group of twelve.
    let pruned = |epochs: u32| {
        format!(
            "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{{data}}/t';
             CREATE PIPELINE p AS SELECT * FROM t WHERE id >= 5700 BATCH 100 REPEAT {epochs}"
        )
    };
    let (files, objects, once) = both_with(&root, &server, &pruned(1), &rereading()).await;
    assert_eq!(files, objects);
    let (files, objects, thrice) = both_with(&root, &server, &pruned(3), &rereading()).await;
    assert_eq!(files, objects);
    let read = bytes(&thrice) - bytes(&once);
    assert!(
        read > 0 && read <= 2 * sizes[1] / 6,
        "{read} of {}",
        sizes[1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_read_once_to_open_it_and_once_an_epoch() {
    let (root, server) = bucket(|folder| {
        let rows = |n: i32| format!("{n},{}\n", "x".repeat(100));
        let text: String = (0..30_000).map(rows).collect();
        fs::write(folder.join("t.csv"), format!("id,text\n{text}")).unwrap();
        let rows = |n: i32| format!("{{\"id\": {n}, \"text\": \"{}\"}}\n", "y".repeat(100));
        let text: String = (0..30_000).map(rows).collect();
        fs::write(folder.join("t.json"), text).unwrap();
    });
    for (format, file) in [("CSV", "t.csv"), ("JSON", "t.json")] {
        let sql = format!(
            "CREATE EXTERNAL TABLE t STORED AS {format} LOCATION '{{data}}/{file}';
             CREATE PIPELINE p AS SELECT id, text FROM t SHUFFLE WITHIN 9000 ROWS BATCH 1000
             OPTIONS (optimize = 'off')"
        );
        let (files, objects, seen) = both(&root, &server, &sql).await;
        assert_eq!(files, objects);
        let size = fs::metadata(server.file(file)).unwrap().len();
        assert!(
            bytes(&seen) <= 2 * size,
            "{file}: {} of {}",
            bytes(&seen),
            2 * size
        );
        assert!(seen.len() < 12, "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn splits_of_a_window_are_read_beside_each_other() {
    let (_root, server) = bucket(|folder| {
        fs::create_dir(folder.join("t")).unwrap();
        for file in 0..4 {
            let rows = (1000 * file..1000 * (file + 1)).map(|n| format!("{n}\n"));
            let text = rows.collect::<String>();
            fs::write(folder.join(format!("t/{file}.csv")), format!("id\n{text}")).unwrap();
        }
    });
    let session = server.session();
    let sql = "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 's3://bucket/t';
        CREATE PIPELINE p AS SELECT id FROM t SHUFFLE GLOBALLY BATCH 100 OPTIONS (optimize = 'off')";
    session.load(sql).await.unwrap();
    server.hold();
    let mut run = session.run("p", RunConfig::default()).await.unwrap();
    let mut rows = 0;
    while let Some(batch) = run.next().await {
        rows += batch.unwrap().batch.num_rows();
    }
    assert_eq!(rows, 4000);
    assert!(server.have_met());
}

#[tokio::test(flavor = "multi_thread")]
async fn later_epochs_read_nothing_that_fits_into_memory() {
    let (root, server) = bucket(|folder| {
        fs::create_dir(folder.join("t")).unwrap();
        for file in 0..4 {
            let rows = |n: i32| format!("{n},{}\n", "x".repeat(100));
            let text: String = { 10_000 * file..10_000 * (file + 1) }.map(rows).collect();
            fs::write(
                folder.join(format!("t/{file}.csv")),
                format!("id,text\n{text}"),
            )
            .unwrap();
        }
    });
    let sizes = (0..4).map(|file| server.file(&format!("t/{file}.csv")));
    let size: u64 = sizes.map(|file| fs::metadata(file).unwrap().len()).sum();
    for order in ["SHUFFLE WITHIN 15000 ROWS", ""] {
        let repeated = |epochs: u32| {
            format!(
                "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{{data}}/t';
                 CREATE PIPELINE p AS SELECT id, text FROM t WHERE id % 3 > 0 {order} BATCH 1000
                 REPEAT {epochs} OPTIONS (optimize = 'off')"
            )
        };
        let (_, _, once) = both(&root, &server, &repeated(1)).await;
        let (expected, objects, kept) = both(&root, &server, &repeated(7)).await;
        assert_eq!(expected, objects);
        let (files, objects, read) = both_with(&root, &server, &repeated(7), &rereading()).await;
        assert_eq!([&files, &objects], [&expected; 2]);
        // The first windows of the second epoch may be read before the first epoch ends.
        let [once, kept, read] = [once, kept, read].map(|seen| bytes(&seen));
        let all = format!("{order}: {once}, {kept}, {read} of {size}");
        assert!(kept <= once + size && read >= once + 4 * size, "{all}");
        // With little memory, a part of the rows is kept, or none.
        for memory in [17 << 20, 26 << 20] {
            let config = RunConfig {
                memory_limit: Some(memory),
                ..RunConfig::default()
            };
            let (files, objects, part) = both_with(&root, &server, &repeated(7), &config).await;
            assert_eq!([&files, &objects], [&expected; 2]);
            let part = bytes(&part);
            assert!(part > kept && part <= read, "{all}; {part} of {memory}");
        }
    }
}

/// Returns the number of bytes that opening `file` as a table requests, and that one epoch requests.
async fn opening_and_epoch(server: &Server, format: &str, file: &str) -> (u64, u64) {
    let session = server.session();
    let table = format!("CREATE EXTERNAL TABLE t STORED AS {format} LOCATION 's3://bucket/{file}'");
    server.take();
    session.execute(&table).await.unwrap();
    let opened = bytes(&server.take());
    let query = "CREATE PIPELINE p AS SELECT * FROM t SHUFFLE WITHIN 64 ROWS BATCH 4
        OPTIONS (optimize = 'off')";
    let batches = run(&session, query).await.unwrap();
    assert_eq!(batches.len(), 4);
    (opened, bytes(&server.take()))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_large_blocks_the_headers_are_read_first_and_each_block_once_an_epoch() {
    // Blocks of 1 MiB, which do not compress.
    let mut draw = Draw::new(3);
    let value = |_| -> Vec<u8> { (0..1 << 20).map(|_| draw.next() as u8).collect() };
    let values: Vec<Vec<u8>> = (0..16).map(value).collect();
    let (_root, server) = bucket(|folder| {
        let rows = |value: &Vec<u8>| {
            let column: ArrayRef = Arc::new(BinaryArray::from_vec(vec![value]));
            RecordBatch::try_from_iter([("bytes", column)]).unwrap()
        };
        let schema = rows(&values[0]).schema();
        let file = File::create(folder.join("t.arrow")).unwrap();
        let mut arrow = FileWriter::try_new(file, &schema).unwrap();
        let mut avro = AvroWriter::new(Vec::new(), schema.as_ref().clone()).unwrap();
        for value in &values {
            arrow.write(&rows(value)).unwrap();
            avro.write(&rows(value)).unwrap();
        }
        arrow.finish().unwrap();
        avro.finish().unwrap();
        fs::write(folder.join("t.avro"), avro.into_inner()).unwrap();
        let files = (0..).map(|n| format!("{n:02}.bin")).zip(values.clone());
        let archive = tar(&files.collect::<Vec<_>>());
        fs::write(folder.join("t.tar.gz"), gzip(&archive)).unwrap();
        fs::write(folder.join("t.tar"), archive).unwrap();
    });
    for (format, file, most) in [
        ("ARROW", "t.arrow", 0.1),
        ("AVRO", "t.avro", 0.1),
        ("WEBDATASET", "t.tar", 0.1),
        ("WEBDATASET", "t.tar.gz", 1.0),
    ] {
        let size = fs::metadata(server.file(file)).unwrap().len() as f64;
        let (opened, epoch) = opening_and_epoch(&server, format, file).await;
        let (opened, epoch) = (opened as f64 / size, epoch as f64 / size);
        assert!(opened > 0.0 && opened <= most, "{file}: {opened}");
        assert!((0.9..1.1).contains(&epoch), "{file}: {epoch}");
    }
}
