//! Tests of caches in a bucket.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use forebay::{RunConfig, Session};

use crate::common::{digest, photos};
use crate::errors::{command, with};
use crate::reads::bucket;
use crate::server::{KEY, SECRET, Seen, Server};

const PHOTOS: u64 = 90;
const EPOCHS: u64 = 3;
/// Maximum number of photos that planning reads.
const SAMPLE: usize = 64;

/// Returns a pipeline over the photos in `data`, whose resized images are cached in `cache`.
fn pipeline(data: &str, cache: &str) -> String {
    format!(
        "CREATE OR REPLACE PIPELINE p AS SELECT label, random_crop(x, 20, 20) AS pixels
         FROM (SELECT label, resize_shortest(decode_image(image), 24) AS x FROM images('{data}')) AS q
         SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 8 REPEAT {EPOCHS}
         CACHE AT resize_shortest OPTIONS (cache_dir = '{cache}')"
    )
}

/// Returns a bucket with the photos, and the digest of the pipeline over files, with a cache in a
/// directory.
async fn photos_and_digest() -> (tempfile::TempDir, Server, String) {
    let (root, server) = bucket(|folder| photos(&folder.join("photos"), PHOTOS as u32, 3));
    let photos = server.file("photos").display().to_string();
    let cache = root.path().join("cache").display().to_string();
    let files = run(&Session::new(), &pipeline(&photos, &cache)).await;
    (root, server, files.digest)
}

/// Digest of a run, and the number of rows that it computed.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    digest: String,
    computed: u64,
}

async fn run(session: &Session, sql: &str) -> Outcome {
    session.execute(sql).await.unwrap();
    let mut run = session.run("p", RunConfig::default()).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        batches.push(batch.unwrap());
    }
    let (read, computed) = run.cached().unwrap();
    assert_eq!(read + computed, PHOTOS * EPOCHS);
    Outcome {
        digest: digest(&batches),
        computed,
    }
}

/// Returns how often each photo was read.
fn photo_reads(seen: &[Seen]) -> BTreeMap<&str, usize> {
    let mut reads = BTreeMap::new();
    let is_read = |of: &&Seen| of.method == "GET" && !of.is_list && !of.is_fault;
    for of in seen.iter().filter(is_read) {
        if of.key.starts_with("photos/") {
            *reads.entry(of.key.as_str()).or_insert(0) += 1;
        }
    }
    reads
}

#[tokio::test(flavor = "multi_thread")]
async fn photos_are_read_once_and_then_the_cache() {
    let (_root, server, digest) = photos_and_digest().await;
    let sql = pipeline("s3://bucket/photos", "s3://bucket/rows");
    let cold = run(&server.session(), &sql).await;
    let seen = server.take();
    let reads = photo_reads(&seen);
    assert_eq!(reads.len() as u64, PHOTOS);
    assert!(reads.values().all(|&count| count == 1), "{reads:?}");
    let computed = PHOTOS;
    let expected = digest.clone();
    assert_eq!(cold, Outcome { digest, computed });
    // Another process reads no photos but the sample by which its plan is chosen.
    let warm = run(&server.session(), &sql).await;
    let seen = server.take();
    let reads = photo_reads(&seen);
    assert!(reads.len() <= SAMPLE, "{}", reads.len());
    assert!(reads.values().all(|&count| count == 1), "{reads:?}");
    let digest = expected;
    assert_eq!(
        warm,
        Outcome {
            digest,
            computed: 0
        }
    );
    // The photos took this many bytes, and the rows of three epochs a bounded number.
    let written = bytes(&server.file("rows"));
    let rows = seen
        .iter()
        .filter(|of| of.key.starts_with("rows/") && of.method == "GET");
    let read: u64 = rows.map(|of| of.bytes).sum();
    assert!(read <= (EPOCHS + 2) * written, "{read} of {written}");
}

/// Returns the size of the files below `folder`.
fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        folder if folder.is_dir() => bytes(&entry.path()),
        file => file.len(),
    };
    entries.map(size).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_now_and_then_changes_no_row() {
    let (_root, server, digest) = photos_and_digest().await;
    server.fail(10);
    let sql = pipeline("s3://bucket/photos", "s3://bucket/rows");
    for _ in 0..3 {
        assert_eq!(run(&server.session(), &sql).await.digest, digest);
    }
    assert!(server.take().iter().any(|seen| seen.is_fault));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_keeps_and_lists_a_cache_in_a_bucket() {
    let (root, server, digest) = photos_and_digest().await;
    let file = root.path().join("p.sql");
    fs::write(&file, pipeline("s3://bucket/photos", "s3://bucket/rows")).unwrap();
    let variables = with(&server, KEY, SECRET);
    let sql = file.to_str().unwrap();
    let (is_ok, text) = command(&["run", "-f", sql, "--digest"], &variables);
    assert!(is_ok && text.contains(&digest), "{digest}: {text}");
    let (is_ok, text) = command(&["cache", "ls", "--dir", "s3://bucket/rows"], &variables);
    assert!(is_ok && text.contains("1 entry"), "{text}");
    let (is_ok, text) = command(&["cache", "ls", "--dir", "http://host/rows"], &variables);
    assert!(
        !is_ok && text.contains("a web server cannot store it"),
        "{text}"
    );
}

#[cfg(feature = "cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn workers_share_a_cache_in_a_bucket() {
    use std::sync::Arc;

    use forebay::Cluster;
    use forebay::forebay_cluster::WindowSettings;
    use forebay::forebay_cluster::in_process::InProcessEngine;
    use forebay::forebay_cluster::job_handler::JobHandler;
    use forebay::forebay_cluster::jobs::JobSettings;
    use forebay::object_store::memory::InMemory;

    let (_root, server, digest) = photos_and_digest().await;
    let sql = pipeline("s3://bucket/photos", "s3://bucket/rows");
    let on_workers = || {
        let worker = |_| {
            let objects = server.stores();
            let settings = JobSettings {
                objects,
                ..JobSettings::default()
            };
            Arc::new(JobHandler::new(settings)) as _
        };
        let engine = InProcessEngine::new((0..3).map(worker));
        Session::on_cluster(Cluster::new(Arc::new(engine), WindowSettings::default()))
    };
    // A store of this process would not reach the workers.
    let memory = Arc::new(InMemory::new());
    let registered = on_workers().register_object_store("s3://bucket", memory);
    let error = registered.unwrap_err();
    assert!(
        error.is_user() && error.to_string().contains("environment of the workers"),
        "{error}"
    );
    for computed in [PHOTOS, 0] {
        let digest = digest.clone();
        assert_eq!(run(&on_workers(), &sql).await, Outcome { digest, computed });
    }
    // One process finds the rows of the workers.
    let computed = 0;
    assert_eq!(
        run(&server.session(), &sql).await,
        Outcome { digest, computed }
    );
}
