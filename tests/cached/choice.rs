//! The optimiser's choice of a cache point, by the cost that caching saves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::ipc::reader::StreamReader;
use forebay::{Coefficients, Outcome, RunConfig, Session};

use crate::common::{digest, parquet, photos};
use crate::{batches_of, run};

/// Creates a session with prices under which reading photos is as slow as over a network.
fn far() -> Session {
    let mut prices = Coefficients::clone(&Coefficients::declared());
    let photos = prices.scans.get_mut("IMAGEFOLDER").unwrap();
    for cost in [&mut photos.stored, &mut photos.within, &mut photos.globally] {
        cost.ps_per_row = 200_000_000;
    }
    Session::new().with_prices(prices)
}

/// Returns the text with which EXPLAIN VERBOSE displays the cache point chosen for the pipeline `p`
/// in `sql`.
async fn place(sql: &str) -> String {
    let session = far();
    session.execute(sql).await.unwrap();
    let said = session.execute("EXPLAIN VERBOSE PIPELINE p").await.unwrap();
    let [Outcome::Text(text)] = said.as_slice() else {
        panic!("{said:?}");
    };
    let chosen = text.lines().filter(|line| line.starts_with("  *"));
    let chosen: Vec<&str> = chosen.collect();
    assert_eq!(chosen.len(), 1, "{text}");
    chosen[0].to_owned()
}

/// Returns all files in a folder and its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let below = paths.flat_map(|path| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    });
    below.collect()
}

/// Returns a pipeline over images that take more space decoded than as files.
fn enlarged(source: &str, options: &str) -> String {
    format!(
        "CREATE PIPELINE p AS SELECT random_crop(normalize(x, 'imagenet'), 56, 56) AS pixels
         FROM (SELECT resize(decode_image(image), 64, 64) AS x FROM {source}) AS q
         SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 12 REPEAT 4 {options}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_are_too_large_decoded_are_cached_encoded() {
    const QUOTA: u64 = 150_000;
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 60, 3);
    let source = format!("images('{}')", data.display());
    let within = |quota: u64| {
        let options = format!(
            "OPTIONS (cache_dir = '{}', cache_quota = {quota})",
            cache.display()
        );
        enlarged(&source, &options)
    };
    for (quota, expected) in [
        (u64::MAX, "  x = "),
        (QUOTA, "scan #0 images"),
        (1_000, "no cache"),
    ] {
        let chosen = place(&within(quota)).await;
        assert!(chosen.contains(expected), "{quota}: {chosen}");
    }
    let plain = run(&enlarged(&source, "CACHE OFF")).await;
    let photos = files(&data);
    let mut encoded: Vec<Vec<u8>> = photos.iter().map(|p| std::fs::read(p).unwrap()).collect();
    encoded.sort();

    let session = far();
    session.execute(&within(QUOTA)).await.unwrap();
    let mut run = session.run("p", RunConfig::default()).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        batches.push(batch.unwrap());
        if batches.len() == 5 {
            // After the first epoch, all rows are cached and the photos are not needed any more.
            std::fs::remove_dir_all(&data).unwrap();
        }
    }
    assert_eq!(run.cached(), Some((180, 60)));
    assert_eq!(batches.len(), 20);
    assert_eq!(digest(&batches), plain.digest);

    let kept = files(&cache);
    let bytes: u64 = kept.iter().map(|p| p.metadata().unwrap().len()).sum();
    assert!(bytes <= QUOTA, "{bytes}");
    let segments = kept
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "arrows"));
    let mut stored: Vec<Vec<u8>> = Vec::new();
    for segment in segments {
        let file = std::fs::File::open(segment).unwrap();
        for rows in StreamReader::try_new(file, None).unwrap() {
            let column = cast(rows.unwrap().column(0), &DataType::Binary).unwrap();
            stored.extend(
                column
                    .as_binary::<i32>()
                    .iter()
                    .flatten()
                    .map(<[u8]>::to_vec),
            );
        }
    }
    stored.sort();
    assert_eq!(stored, encoded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_as_fast_as_a_cache_is_not_cached() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 60, 3);
    let encoded = files(&data).into_iter().map(|p| std::fs::read(p).unwrap());
    let images: ArrayRef = Arc::new(BinaryArray::from_iter_values(encoded));
    let rows = RecordBatch::try_from_iter([("image", images)]).unwrap();
    let table = dir.path().join("t/photos.parquet");
    parquet(&table, &rows, 20);
    let source = format!("parquet('{}')", table.display());
    let kept = |quota: &str| {
        let options = format!("OPTIONS (cache_dir = '{}' {quota})", cache.display());
        enlarged(&source, &options)
    };
    let chosen = place(&kept("")).await;
    assert!(chosen.contains("  x = "), "{chosen}");
    let chosen = place(&kept(", cache_quota = '150 kB'")).await;
    assert!(chosen.contains("no cache"), "{chosen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rented_disk_has_its_price_in_the_table() {
    let dir = tempfile::tempdir().unwrap();
    photos(dir.path(), 12, 3);
    let source = format!("images('{}')", dir.path().display());
    let session = far();
    let mut said = Vec::new();
    for price in [
        "",
        ", cache_price = '30 s/GB'",
        ", cache_price = '1000 h/GB'",
    ] {
        let cache = dir.path().join("none").display().to_string();
        let sql = enlarged(&source, &format!("OPTIONS (cache_dir = '{cache}' {price})"));
        let kept = !place(&sql).await.contains("no cache");
        let sql = sql.replace("CREATE PIPELINE", "CREATE OR REPLACE PIPELINE");
        session.execute(&sql).await.unwrap();
        let explained = session.explain("p", RunConfig::default(), false).await;
        let explained = explained.unwrap().verbose();
        let text = explained.to_string();
        let heading = text.lines().find(|line| line.starts_with("Cache ("));
        let seconds = &explained.to_json()["optimizer"]["cache"]["seconds_per_gb_kept"];
        said.push((kept, heading.unwrap().to_owned(), seconds.as_f64()));
    }
    let costs = "Cache (bytes that are kept, costs over all epochs";
    let priced = |price: &str| format!("{costs}, {price} for keeping them)");
    let expected = [
        (true, format!("{costs})"), Some(0.0)),
        (true, priced("30.0 s/GB"), Some(30.0)),
        (false, priced("1000 h/GB"), Some(3.6e6)),
    ];
    assert_eq!(said, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_point_is_chosen_by_the_cost_it_saves() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    photos(&data, 60, 3);
    let auto = |name: &str, epochs: u64, more: &str| {
        format!(
            "CREATE PIPELINE p AS SELECT label, random_crop(normalize(x, 'imagenet'), 20, 20) AS pixels
             FROM (SELECT label, resize_shortest(decode_image(image), 24) AS x FROM images('{}')) AS q
             BATCH 8 REPEAT {epochs} OPTIONS (cache_dir = '{}' {more})",
            data.display(),
            dir.path().join(name).display()
        )
    };
    // A run of one epoch does not read any row again, so nothing is cached.
    let (_, once) = batches_of(&auto("a", 1, ""), RunConfig::default())
        .await
        .unwrap();
    assert_eq!(once, None);
    assert!(!dir.path().join("a").exists());
    let (batches, many) = batches_of(&auto("b", 5, ""), RunConfig::default())
        .await
        .unwrap();
    assert_eq!(many, Some((240, 60)));
    let (plain, _) = batches_of(&auto("b", 5, ", optimize = 'off'"), RunConfig::default())
        .await
        .unwrap();
    assert_eq!(digest(&batches), digest(&plain));
    // No entry fits into the quota of 100 bytes.
    let (_, tight) = batches_of(&auto("c", 5, ", cache_quota = '100'"), RunConfig::default())
        .await
        .unwrap();
    assert_eq!(tight, None);
}
