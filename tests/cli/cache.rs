//! The command `cache`, which lists, verifies and removes the entries of a cache directory.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use forebay_runtime::cache::{CacheKey, CacheOptions, EntryInfo, FileKey, RowAddress, Stores};
use tempfile::TempDir;

use super::forebay;

const KEYS: [CacheKey; 2] = [CacheKey::new([0xab; 32]), CacheKey::new([0x12; 32])];

/// Creates a temporary folder with a cache directory `cache` that has two entries of 100 rows each.
fn cached() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("cache");
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let file = FileKey::of("f", b"", None);
    let addresses: Vec<_> = (0..100).map(|row| RowAddress { file, row }).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let place = place.to_str().unwrap();
        let stores = Stores::default();
        let store = stores.open(place, CacheOptions::default()).await.unwrap();
        for (key, cost) in KEYS.into_iter().zip([2_000_000_000, 1000]) {
            let info = EntryInfo::new("decode_image(image)", batch.schema(), cost);
            let entry = store.entry(key, info).await.unwrap();
            let mut writer = entry.writer().await.unwrap().unwrap();
            writer.append(&addresses, &batch, &[]).await.unwrap();
            writer.finish().await.unwrap();
        }
    });
    folder
}

/// Returns the path of a segment file of the cache entry `KEYS[0]`.
fn segment(folder: &Path) -> std::path::PathBuf {
    let folder = folder.join("cache").join(KEYS[0].to_string());
    let mut paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .find(|path| path.extension().is_some_and(|e| e == "arrows"))
        .unwrap()
}

#[test]
fn entries_are_listed_explained_and_removed() {
    let folder = cached();
    let cache = |words: &[&str]| {
        forebay(
            folder.path(),
            &[&["cache"], words, &["--dir", "cache"]].concat(),
        )
    };
    let listed = cache(&["ls"]).ok().stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 4, "{listed}");
    assert!(lines[0].starts_with("key           rows"), "{listed}");
    assert!(lines[1].starts_with("abababababab  100"), "{listed}");
    assert!(lines[1].ends_with("decode_image(image)"), "{listed}");
    assert!(lines[3].starts_with("(2 entries, "), "{listed}");
    let json = cache(&["ls", "--json"]).json();
    assert_eq!(json[1]["key"], KEYS[1].to_string());
    assert_eq!(
        (&json[0]["rows"], &json[0]["saved_ps"]),
        (&100.into(), &200_000_000_000_u64.into())
    );
    let why = cache(&["why", "ab"]).ok().stdout;
    for part in [
        "decode_image(image)",
        "2.0 ms of computing a row",
        "just now",
        "process ",
    ] {
        assert!(why.contains(part), "{part} in\n{why}");
    }
    assert_eq!(
        cache(&["why", "ab", "--json"]).json()["segments"][0]["rows"],
        100
    );
    for (words, part) in [
        (&["why", "ff"] as &[&str], "no entry 'ff'"),
        (&["why", "../.."], "is not a cache key"),
        (&["rm"], "required"),
        (&["rm", "ab", "--all"], "cannot be used with"),
    ] {
        let ran = cache(words);
        assert_eq!(ran.code, Some(2), "{words:?}");
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    assert!(cache(&["rm", "12"]).ok().stderr.contains("removed 1 entry"));
    assert_eq!(cache(&["ls", "--json"]).json().as_array().unwrap().len(), 1);
    assert_eq!(cache(&["rm", "--all", "--json"]).json()["removed"], 1);
    assert_eq!(cache(&["ls", "--json"]).json(), serde_json::json!([]));
    // `cache ls` does not create the directory of a cache that does not exist.
    let missing = forebay(folder.path(), &["cache", "ls", "--dir", "nowhere"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("'nowhere'") && !folder.path().join("nowhere").exists());
    // A web server stores no cache.
    let remote = forebay(
        folder.path(),
        &["cache", "ls", "--dir", "http://127.0.0.1/cache"],
    );
    assert_eq!(remote.code, Some(2));
    let advice = "name a directory, or a location in an object store";
    assert!(remote.stderr.contains(advice), "{}", remote.stderr);
}

#[test]
fn damage_is_found_and_repaired() {
    let folder = cached();
    let verify = |words: &[&str]| {
        let words = [&["cache", "verify", "--dir", "cache"], words].concat();
        forebay(folder.path(), &words)
    };
    assert!(
        verify(&[])
            .ok()
            .stdout
            .starts_with("2 entries, 2 segments, ")
    );
    let path = segment(folder.path());
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = verify(&[]);
    assert_eq!(found.code, Some(1));
    let name = path.file_stem().unwrap().to_str().unwrap();
    assert!(
        found
            .stdout
            .contains(&format!("damaged: segment {name} of entry abababababab"))
    );
    assert!(found.stderr.contains("--repair"), "{}", found.stderr);
    assert_eq!(verify(&["--json"]).code, Some(1));
    let repaired = verify(&["--repair", "--json"]).json();
    assert_eq!(
        (&repaired["removed"], &repaired["damaged"][0]["segment"]),
        (&1.into(), &name.into())
    );
    assert!(
        verify(&[])
            .ok()
            .stdout
            .starts_with("2 entries, 1 segment, ")
    );
}
