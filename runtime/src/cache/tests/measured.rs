//! Tests of the measured bandwidth and the choice of compression.

use super::*;
use crate::cache::{Compression, testing};

/// Opens a store that transfers a limited number of bytes per second.
async fn throttled(memory: &Arc<InMemory>, bytes_per_second: u64) -> CacheStore {
    let (store, clock) = testing::throttled(Arc::clone(memory) as _, bytes_per_second);
    let store = Store::new("s3://b", store);
    CacheStore::in_objects(store, Path::from("a/cache"), small(), clock).await
}

fn about(measured: Option<u64>, expected: u64) -> bool {
    measured.is_some_and(|m| m.abs_diff(expected) < expected / 10)
}

#[tokio::test]
async fn bandwidth_is_measured_and_kept_with_the_store() {
    let memory = Arc::new(InMemory::new());
    let store = throttled(&memory, 2_000_000).await;
    assert_eq!(store.bandwidth().write_bps, None);
    write(&entry(&store).await, &shuffled(400)).await;
    let measured = store.bandwidth();
    assert!(about(measured.write_bps, 2_000_000), "{measured:?}");
    // The writer saved the measurement, so another process has this measurement as soon as it opens
    // the store.
    let next = throttled(&memory, 500_000).await;
    assert_eq!(next.bandwidth().write_bps, measured.write_bps);
    let reader = entry(&next).await;
    let all: Vec<u64> = (0..400).collect();
    assert_eq!(there(&reader, &all).await, all);
    assert!(
        about(next.bandwidth().read_bps, 500_000),
        "{:?}",
        next.bandwidth()
    );
    next.save_bandwidth().await.unwrap();
    let last = throttled(&memory, 1).await;
    assert_eq!(last.bandwidth(), next.bandwidth());
    let counters = next.counters();
    assert!(counters.read.bytes > 10_000 && counters.written.bytes == 0);
}

/// Returns the compression that a store of this bandwidth, `None` if unmeasured, chooses for 300
/// texts.
async fn compression(bytes_per_second: Option<u64>, text: impl Fn(u64) -> String) -> Compression {
    let memory = Store::new("s3://b", Arc::new(InMemory::new()));
    let options = CacheOptions {
        block_bytes: 64 << 10,
        segment_bytes: 1 << 20,
        ..small()
    };
    let clock = Arc::new(ManualClock::default());
    let store = CacheStore::in_objects(memory, Path::default(), options, clock).await;
    let texts = StringArray::from_iter_values((0..300).map(text));
    let batch = RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef)]).unwrap();
    if let Some(bps) = bytes_per_second {
        let second = std::time::Duration::from_secs(1);
        store.shared.files.meter.wrote(bps, second);
        store.shared.files.meter.read(bps, second);
    }
    let info = EntryInfo::new("texts", batch.schema(), 1);
    let entry = store.entry(KEY, info).await.unwrap();
    let mut writer = entry.writer().await.unwrap().unwrap();
    writer
        .append(&addresses(0..300), &batch, &[])
        .await
        .unwrap();
    writer.finish().await.unwrap();
    let locations: Vec<_> = entry
        .find(&addresses(0..300))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(entry.read(&locations).await.unwrap().batch, batch);
    store.explain(&KEY).await.unwrap().unwrap().segments[0].compression
}

#[tokio::test]
async fn compression_is_chosen_by_what_it_gains() {
    // The clock stands still, so measured compression takes no time, and only the size decides.
    let texts = |i: u64| format!("a sentence about number {i} ").repeat(20);
    assert_ne!(compression(Some(1_000_000), texts).await, Compression::None);
    let noise = |i: u64| {
        let hashes = (0..40).map(|n| forebay_udfs::hash::combine(i, n));
        // Characters of six random bits per byte, which only Zstandard can compress.
        let letter = |bits: u64| char::from(b'0' + (bits & 63) as u8);
        hashes
            .flat_map(|hash| (0..10).map(move |n| letter(hash >> (6 * n))))
            .collect()
    };
    assert_ne!(compression(None, noise).await, Compression::Lz4);
}
