//! Tests that damaged rows count as absent, are reported, and are written again, and are never
//! returned as sound.

use std::fs;

use super::*;
use crate::cache::block::{self, END};
use crate::cache::files::Files;
use crate::cache::key::{checksum_of, hex};
use crate::cache::layout::{self, Block};
use crate::cache::manifest::{EntryManifest, SegmentEntry};
use crate::cache::shard::ShardId;
use crate::cache::{Compression, RowAddress};

/// Creates a store in a directory, with one segment of twenty rows. Returns the directory and the
/// path of the segment.
async fn stored() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let options = CacheOptions {
        segment_bytes: 1 << 20,
        ..small()
    };
    write(
        &entry(&directory(&folder, options).await).await,
        &shuffled(20),
    )
    .await;
    let mut segments = files(folder.path(), ".arrows");
    assert_eq!(segments.len(), 1);
    (folder, segments.pop().unwrap())
}

/// Reads all rows. Returns the rows that could be read, and true when damage was reported.
async fn read(folder: &tempfile::TempDir) -> (Vec<u64>, bool) {
    let store = directory(folder, small()).await;
    let all: Vec<u64> = (0..20).collect();
    let got = there(&entry(&store).await, &all).await;
    (got, store.counters().damaged > 0)
}

#[tokio::test]
async fn a_flipped_byte_anywhere_is_found() {
    let (folder, segment) = stored().await;
    let manifest = files(folder.path(), "manifest.json").pop().unwrap();
    let (bytes, listed) = (fs::read(&segment).unwrap(), fs::read(&manifest).unwrap());
    let all: Vec<u64> = (0..20).collect();
    // The cache never reads the schema message at the front, which is for other tools.
    let start = block::schema_message(&schema()).unwrap().len();
    for at in (start..bytes.len()).step_by(31) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        fs::write(&segment, &bad).unwrap();
        fs::write(&manifest, &listed).unwrap();
        let (got, reported) = read(&folder).await;
        let end_marker = got == all && !reported;
        if end_marker {
            continue;
        }
        assert!(got.len() < 20 && reported, "byte {at}");
        // The damaged segment was removed from the manifest, so the next reader reports nothing.
        assert!(!segment.exists(), "byte {at}");
        assert_eq!(read(&folder).await, (vec![], false));
    }
}

#[tokio::test]
async fn a_segment_cut_off_or_missing_is_found() {
    let (folder, segment) = stored().await;
    let manifest = files(folder.path(), "manifest.json").pop().unwrap();
    let (bytes, listed) = (fs::read(&segment).unwrap(), fs::read(&manifest).unwrap());
    for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&segment, &bytes[..length]).unwrap();
        fs::write(&manifest, &listed).unwrap();
        assert_eq!(read(&folder).await, (vec![], true), "{length}");
    }
    assert!(!segment.exists());
    fs::write(&manifest, &listed).unwrap();
    assert_eq!(read(&folder).await, (vec![], true));
}

#[tokio::test]
async fn what_goes_while_it_is_read_is_missing() {
    let (folder, segment) = stored().await;
    let store = directory(&folder, small()).await;
    let entry = entry(&store).await;
    let locations: Vec<_> = entry
        .find(&addresses(0..20))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(locations.len(), 20);
    let length = fs::metadata(&segment).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&segment)
        .unwrap()
        .set_len(length / 2)
        .unwrap();
    let got = entry.read(&locations).await.unwrap();
    assert!(!got.missing.is_empty());
    assert_eq!(got.batch.num_rows() + got.missing.len(), 20);
    // The old locations are stale now, which is not an error.
    assert_eq!(entry.read(&locations).await.unwrap().missing.len(), 20);
    assert_eq!(entry.find(&addresses([3])), [None]);
    assert_eq!(store.counters().damaged, 1);
}

#[tokio::test]
async fn what_was_damaged_is_written_again() {
    let (folder, segment) = stored().await;
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let store = directory(&folder, small()).await;
    let entry = entry(&store).await;
    let all: Vec<u64> = (0..20).collect();
    // The damage is found while a writer of the same process is open.
    let mut writer = entry.writer().await.unwrap().unwrap();
    assert!(there(&entry, &all).await.len() < 20);
    append(&mut writer, 0..20).await.unwrap();
    writer.finish().await.unwrap();
    assert_eq!(there(&entry, &all).await, all);
    assert_eq!(read(&folder).await, (all, false));
    assert!(store.verify(false).await.unwrap().damaged.is_empty());
}

#[tokio::test]
async fn a_repair_does_not_take_the_writers_place() {
    let (folder, _) = stored().await;
    let store = directory(&folder, small()).await;
    let entry = entry(&store).await;
    let shard = ShardId::first(KEY);
    let name = EntryManifest::load(&store.shared.files, &shard)
        .await
        .unwrap();
    entry.condemn(shard, &name.manifest.segments[0].name, "a test says so");
    let ((), writer) = tokio::join!(entry.repair(), entry.writer());
    assert!(writer.unwrap().is_some());
}

#[tokio::test]
async fn a_damaged_manifest_is_an_empty_one() {
    let (folder, segment) = stored().await;
    let manifest = files(folder.path(), "manifest.json").pop().unwrap();
    let listed = fs::read_to_string(&manifest).unwrap();
    let sound = fs::read(&segment).unwrap();
    let name = segment.file_stem().unwrap().to_str().unwrap();
    for bad in [
        String::new(),
        listed[..listed.len() / 2].to_owned(),
        listed.replace(name, "../../../../../../../etc/passwd"),
        listed.replace("\"version\":1", "\"version\":9"),
        "[".repeat(100_000),
    ] {
        assert_ne!(bad, listed);
        fs::write(&manifest, bad).unwrap();
        assert_eq!(read(&folder).await.0, [0; 0]);
    }
    // A stated size that is larger than the file on disk is not allocated.
    let size = fs::metadata(&segment).unwrap().len();
    let huge = listed.replace(&format!("\"bytes\":{size}"), "\"bytes\":999999999999");
    assert_ne!(huge, listed);
    fs::write(&manifest, huge).unwrap();
    assert_eq!(read(&folder).await, (vec![], true));
    fs::write(&segment, &sound).unwrap();
    // Wrong row counts and row sizes in the manifest do no harm: reading uses the index of the
    // segment.
    let lies = [
        ("\"rows\":20", "\"rows\":21"),
        ("\"row_bytes\":", "\"row_bytes\":9"),
    ];
    for (from, to) in lies {
        fs::write(&manifest, listed.replacen(from, to, 1)).unwrap();
        assert_eq!(read(&folder).await.0.len(), 20, "{to}");
    }
    fs::write(&manifest, "no JSON").unwrap();
    write(&entry(&directory(&folder, small()).await).await, &[1, 2]).await;
    assert_eq!(read(&folder).await, (vec![1, 2], false));
}

/// Writes a segment of three rows whose block is `forged`, with checksums that match.
async fn forge(files: &Files, forged: &[u8]) {
    let header = block::schema_message(&schema()).unwrap();
    let blocks = [Block {
        start: header.len() as u64,
        bytes: forged.len() as u32,
        first_row: 0,
        rows: 3,
        checksum: checksum_of(forged),
    }];
    let rows: Vec<(RowAddress, bool)> = (0..3).map(|row| (address(row), true)).collect();
    let index = layout::encode(
        [1; 16],
        header.len() as u64,
        &blocks,
        &layout::runs(rows.into_iter()),
    );
    let segment = [&header, forged, &END, &index].concat();
    let entry = SegmentEntry {
        name: hex(&checksum_of(&index)),
        bytes: segment.len() as u64,
        index_bytes: index.len() as u64,
        rows: 3,
        dropped: 0,
        row_bytes: 1,
        compression: Compression::None,
        saved_ps: u64::MAX,
        written_ms: u64::MAX,
        writer: String::new(),
    };
    let mut manifest = EntryManifest::empty(&KEY);
    manifest.schema = hex(&checksum_of(&header));
    let path = files.segment(&ShardId::first(KEY), &entry.name);
    manifest.segments.push(entry);
    files.put_large(&path, vec![segment.into()]).await.unwrap();
    let bytes = manifest.to_json().unwrap();
    files
        .put_large(&files.manifest(&ShardId::first(KEY)), vec![bytes.into()])
        .await
        .unwrap();
}

#[tokio::test]
async fn what_was_forged_is_decoded_with_care() {
    let sound = block::encode(&batch(0..3), Compression::Zstd).unwrap();
    let mut forgeries = vec![
        vec![0; 100],
        vec![0xff; 100],
        sound[..sound.len() / 2].to_vec(),
    ];
    for at in (0..sound.len()).step_by(7) {
        for byte in [0, 0x7f, 0xff] {
            let mut forged = sound.clone();
            forged[at] = byte;
            forgeries.push(forged);
        }
    }
    let (store, ..) = in_memory(small()).await;
    forge(&store.shared.files, &sound).await;
    assert_eq!(there(&entry(&store).await, &[2, 0]).await, [2, 0]);
    for forged in forgeries {
        let (store, ..) = in_memory(small()).await;
        forge(&store.shared.files, &forged).await;
        let entry = entry(&store).await;
        let locations: Vec<_> = entry.find(&addresses(0..3)).into_iter().flatten().collect();
        assert_eq!(locations.len(), 3);
        // A forged block gives other values, or fails to decode and is reported as damaged.
        let got = entry.read(&locations).await.unwrap();
        assert_eq!(got.batch.num_rows() + got.missing.len(), 3);
        assert_eq!(got.missing.is_empty(), store.counters().damaged == 0);
        assert!(
            store
                .list()
                .await
                .unwrap()
                .iter()
                .all(|entry| entry.benefit.is_finite())
        );
    }
}
