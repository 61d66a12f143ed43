//! Tests of eviction, with quotas that are too small for all rows.

use std::time::Duration;

use object_store::ObjectStoreExt;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn key(n: u8) -> CacheKey {
    CacheKey::new([n; 32])
}

fn quota(bytes: u64) -> CacheOptions {
    CacheOptions {
        quota: Some(bytes),
        block_bytes: 4096,
        ..small()
    }
}

async fn fill(store: &CacheStore, n: u8, ps_per_row: u64, rows: u64) -> WriterState {
    let info = EntryInfo::new(format!("prefix {n}"), schema(), ps_per_row);
    let entry = store.entry(key(n), info).await.unwrap();
    let mut writer = entry.writer().await.unwrap().unwrap();
    for rows in (0..rows).collect::<Vec<_>>().chunks(25) {
        append(&mut writer, rows.iter().copied()).await.unwrap();
    }
    writer.flush().await.unwrap();
    let state = writer.state();
    writer.finish().await.unwrap();
    state
}

/// Returns the size in bytes of a store with one entry of two hundred rows.
async fn size() -> u64 {
    let (store, ..) = in_memory(CacheOptions {
        quota: None,
        ..quota(0)
    })
    .await;
    fill(&store, 1, 1, 200).await;
    stored_bytes(&store).await
}

async fn rows(store: &CacheStore, n: u8) -> u64 {
    store
        .explain(&key(n))
        .await
        .unwrap()
        .map_or(0, |summary| summary.rows)
}

async fn stored_bytes(store: &CacheStore) -> u64 {
    store.shared.files.total_bytes().await.unwrap()
}

#[tokio::test]
async fn what_does_not_fit_is_not_written() {
    let room = size().await;
    let (store, ..) = in_memory(quota(room)).await;
    assert_eq!(fill(&store, 1, 1000, 1000).await, WriterState::Full);
    let kept = rows(&store, 1).await;
    assert!((100..=200).contains(&kept), "{kept}");
    let bytes = stored_bytes(&store).await;
    assert!((room / 2..=room).contains(&bytes), "{bytes} of {room}");
    // The first rows stay: they are not evicted for later rows of the same entry.
    let entry = store.entry(key(1), info()).await.unwrap();
    assert!(entry.find(&[address(0)])[0].is_some());
    // The quota is smaller than any segment.
    let (tiny, ..) = in_memory(quota(100)).await;
    assert_eq!(fill(&tiny, 1, 1000, 100).await, WriterState::Full);
    assert_eq!(tiny.list().await.unwrap(), []);
    assert!(stored_bytes(&tiny).await < 100);
}

#[tokio::test]
async fn the_least_benefit_is_evicted_first() {
    let room = size().await * 5 / 2;
    let (store, memory, clock) = in_memory(quota(room)).await;
    fill(&store, 1, 1_000, 200).await;
    fill(&store, 2, 1_000_000, 200).await;
    let (cheap, dear) = (rows(&store, 1).await, rows(&store, 2).await);
    assert_eq!((cheap, dear), (200, 200));
    // Rows of entry 3 cost more to compute than those of entry 1, and less than those of entry 2.
    fill(&store, 3, 30_000, 600).await;
    assert!(rows(&store, 1).await < 200);
    assert_eq!(rows(&store, 2).await, 200);
    assert!(rows(&store, 3).await >= 200);
    assert!(stored_bytes(&store).await <= room);
    // Rows of entry 4 cost less to compute than any stored rows.
    let before = (rows(&store, 2).await, rows(&store, 3).await);
    fill(&store, 4, 10, 600).await;
    assert_eq!((rows(&store, 2).await, rows(&store, 3).await), before);
    // Without use for ten days, the benefit falls to a thousandth.
    clock.advance(10 * DAY);
    let again = over(&memory, &clock, quota(room)).await;
    fill(&again, 5, 30_000, 600).await;
    assert!(rows(&again, 5).await > 300);
    assert!(stored_bytes(&again).await <= room);
    let summaries = again.list().await.unwrap();
    assert!(summaries.is_sorted_by(|a, b| a.benefit >= b.benefit));
    // No manifest is left of an entry whose segments were all evicted.
    for gone in (1..5).filter(|n| !summaries.iter().any(|s| s.key == key(*n))) {
        let folder = Path::from(format!("a/cache/{}", key(gone)));
        assert!(memory.head(&folder.join("manifest.json")).await.is_err());
    }
}

#[tokio::test]
async fn evicting_what_is_read_or_written_breaks_neither() {
    let folder = tempfile::tempdir().unwrap();
    let store = directory(&folder, quota(size().await * 2)).await;
    fill(&store, 1, 1_000, 200).await;
    let reader = store.entry(key(1), info()).await.unwrap();
    let all: Vec<u64> = (0..200).collect();
    let locations: Vec<_> = reader
        .find(&addresses(all.clone()))
        .into_iter()
        .flatten()
        .collect();
    // An entry that another writer holds is not evicted.
    let writer = reader.writer().await.unwrap().unwrap();
    fill(&store, 2, 1_000_000, 600).await;
    assert_eq!(rows(&store, 1).await, 200);
    writer.finish().await.unwrap();
    fill(&store, 3, 1_000_000, 600).await;
    assert!(rows(&store, 1).await < 200);
    let got = reader.read(&locations).await.unwrap();
    assert!(!got.missing.is_empty());
    assert_eq!(got.batch.num_rows() + got.missing.len(), 200);
    // Eviction is not reported as damage.
    assert_eq!(store.counters().damaged, 0);
    reader.refresh().await.unwrap();
    let left = there(&reader, &all).await;
    assert_eq!(left.len() as u64, rows(&store, 1).await);
}

#[tokio::test]
async fn reading_keeps_an_entry_young() {
    let (store, _, clock) = in_memory(small()).await;
    fill(&store, 1, 1000, 50).await;
    fill(&store, 2, 1000, 50).await;
    clock.advance(3 * DAY);
    let reader = store.entry(key(2), info()).await.unwrap();
    let location = reader.find(&[address(3)])[0].unwrap();
    clock.advance(3 * DAY);
    reader.read(&[location]).await.unwrap();
    let found = store.list().await.unwrap();
    assert_eq!(found[0].key, key(2));
    assert!(found[0].benefit > 30.0 * found[1].benefit);
    assert_eq!(
        found[0].last_used_ms - found[1].last_used_ms,
        6 * DAY.as_millis() as u64
    );
}
