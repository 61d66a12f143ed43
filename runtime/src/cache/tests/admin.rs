//! Tests of the administration of a store.

use std::fs;

use super::*;

#[tokio::test]
async fn entries_are_listed_explained_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = directory(&folder, small()).await;
    assert_eq!(store.list().await.unwrap(), []);
    assert_eq!(store.explain(&KEY).await.unwrap(), None);
    write(&entry(&store).await, &shuffled(200)).await;
    let other = CacheKey::new([8; 32]);
    let cheap = EntryInfo::new("cheap", schema(), 1);
    write(&store.entry(other, cheap).await.unwrap(), &[1, 2, 3]).await;
    // Folders in the directory whose names are not keys are ignored.
    fs::create_dir(folder.path().join("not a key")).unwrap();
    let found = store.list().await.unwrap();
    assert_eq!(
        found.iter().map(|s| s.key).collect::<Vec<_>>(),
        [KEY, other]
    );
    let first = &found[0];
    assert_eq!(first.text, "decode_image(image)");
    assert_eq!(
        (first.rows, first.dropped, first.saved_ps),
        (200, 0, 200_000_000)
    );
    assert_eq!(
        first.bytes,
        first.segments.iter().map(|s| s.bytes).sum::<u64>()
    );
    assert!(first.segments[0].writer.contains("process") && first.segments[0].written_ms > 0);
    assert!(first.last_used_ms > 0 && first.benefit > found[1].benefit);
    assert_eq!(store.resolve("0707").await.unwrap(), KEY);
    assert!(matches!(
        store.resolve("0").await.unwrap_err(),
        CacheError::Ambiguous { found: 2, .. }
    ));
    assert!(matches!(
        store.resolve("abc").await.unwrap_err(),
        CacheError::Unknown { .. }
    ));
    for text in ["", "../x", &"0".repeat(65)] {
        assert!(matches!(
            store.resolve(text).await.unwrap_err(),
            CacheError::Key { .. }
        ));
    }
    store.remove(&KEY).await.unwrap();
    assert_eq!(store.list().await.unwrap().len(), 1);
    assert_eq!(store.remove_all().await.unwrap(), 1);
    assert_eq!(store.list().await.unwrap(), []);
    assert_eq!(
        files(folder.path(), ".arrows"),
        [0; 0].map(|_: u8| std::path::PathBuf::new())
    );
    // An entry that was removed can be written again.
    write(&entry(&store).await, &[5]).await;
    assert_eq!(there(&entry(&store).await, &[5]).await, [5]);
}

#[tokio::test]
async fn verifying_reads_everything() {
    let folder = tempfile::tempdir().unwrap();
    let store = directory(&folder, small()).await;
    write(&entry(&store).await, &shuffled(300)).await;
    let sound = store.verify(false).await.unwrap();
    assert!(sound.damaged.is_empty() && sound.segments > 2 && sound.entries == 1);
    let segments = files(folder.path(), ".arrows");
    assert_eq!(
        sound.bytes,
        segments
            .iter()
            .map(|p| fs::metadata(p).unwrap().len())
            .sum::<u64>()
    );
    let mut bytes = fs::read(&segments[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&segments[0], bytes).unwrap();
    fs::remove_file(&segments[1]).unwrap();
    let found = store.verify(false).await.unwrap();
    assert_eq!((found.damaged.len(), found.removed), (2, 0));
    let names: Vec<_> = segments[..2]
        .iter()
        .map(|p| p.file_stem().unwrap().to_str())
        .collect();
    assert!(
        found
            .damaged
            .iter()
            .all(|d| names.contains(&d.segment.as_deref()))
    );
    // `verify(false)` changed nothing; `verify(true)` removes the damage.
    assert_eq!(store.verify(true).await.unwrap().removed, 2);
    let after = store.verify(false).await.unwrap();
    assert!(after.damaged.is_empty() && after.segments == sound.segments - 2);
    assert!(!segments[0].exists());
    fs::write(
        folder.path().join(KEY.to_string()).join("manifest.json"),
        "{",
    )
    .unwrap();
    assert!(store.list().await.unwrap()[0].damage.is_some());
    assert_eq!(store.verify(false).await.unwrap().damaged[0].segment, None);
    assert_eq!(store.verify(true).await.unwrap().removed, 1);
    assert_eq!(store.list().await.unwrap(), []);
}
