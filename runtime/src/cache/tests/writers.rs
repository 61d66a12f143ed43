//! Tests of the only writer, of several writers, and of writers that fail or pause.

#![expect(
    clippy::disallowed_methods,
    reason = "a test joins its tasks, and fails where one panics"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::{ObjectStore, PutPayload};

use super::*;
use crate::cache::testing::Disk;
use crate::objects::hooked::{Hook, Hooked};

#[tokio::test]
async fn there_is_one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, clock) = (Arc::new(InMemory::new()), Arc::new(ManualClock::default()));
    let directories = (
        directory(&folder, small()).await,
        directory(&folder, small()).await,
    );
    let objects = (
        over(&memory, &clock, small()).await,
        over(&memory, &clock, small()).await,
    );
    for (one, other) in [directories, objects] {
        let first = entry(&one).await;
        let second = entry(&other).await;
        let writer = first.writer().await.unwrap().unwrap();
        assert!(second.writer().await.unwrap().is_none());
        assert!(first.writer().await.unwrap().is_none());
        let error = other.remove(&KEY).await.unwrap_err();
        assert!(
            error.is_user() && error.to_string().contains("being written"),
            "{error}"
        );
        // Another key can be written at the same time.
        let key = CacheKey::new([9; 32]);
        let elsewhere = other.entry(key, info()).await.unwrap();
        elsewhere
            .writer()
            .await
            .unwrap()
            .unwrap()
            .finish()
            .await
            .unwrap();
        writer.finish().await.unwrap();
        assert!(second.writer().await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_writers_at_once_leave_one_correct_entry() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, clock) = (Arc::new(InMemory::new()), Arc::new(ManualClock::default()));
    for on_disk in [true, false] {
        let open = async || {
            if on_disk {
                directory(&folder, small()).await
            } else {
                over(&memory, &clock, small()).await
            }
        };
        let mut tasks = Vec::new();
        for start in [0, 200] {
            let store = open().await;
            tasks.push(tokio::spawn(async move {
                let entry = entry(&store).await;
                let Some(mut writer) = entry.writer().await.unwrap() else {
                    return 0;
                };
                for rows in (start..start + 400).collect::<Vec<u64>>().chunks(40) {
                    append(&mut writer, rows.iter().copied()).await.unwrap();
                }
                writer.finish().await.unwrap();
                1
            }));
        }
        let mut writers = 0;
        for task in tasks {
            writers += task.await.unwrap();
        }
        assert!(writers >= 1);
        let store = open().await;
        let verified = store.verify(false).await.unwrap();
        assert!(verified.damaged.is_empty() && verified.segments > 1);
        let all: Vec<u64> = (0..600).collect();
        let got = there(&entry(&store).await, &all).await;
        assert_eq!(got.len(), if writers == 2 { 600 } else { 400 });
    }
}

#[tokio::test]
async fn several_writers_fill_one_entry_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, clock) = (Arc::new(InMemory::new()), Arc::new(ManualClock::default()));
    for on_disk in [true, false] {
        let open = async || {
            if on_disk {
                directory(&folder, small()).await
            } else {
                over(&memory, &clock, small()).await
            }
        };
        // Each writer belongs to another process.
        let mut writers = Vec::new();
        for _ in 0..3 {
            let entry = entry(&open().await).await;
            writers.push(entry.shared_writer().await.unwrap().unwrap());
        }
        let store = open().await;
        let reader = entry(&store).await;
        assert!(reader.writer().await.unwrap().is_none());
        for round in 0..4 {
            for (number, writer) in (0..).zip(&mut writers) {
                let first = (3 * round + number) * 30;
                append(writer, first..first + 30).await.unwrap();
                writer.flush().await.unwrap();
            }
            reader.refresh().await.unwrap();
            let so_far: Vec<u64> = (0..90 * (round + 1)).collect();
            assert_eq!(there(&reader, &so_far).await, so_far);
        }
        let listed = store.list().await.unwrap();
        assert_eq!((listed.len(), listed[0].rows), (1, 360));
        let mut shards: Vec<u32> = listed[0].segments.iter().map(|s| s.shard).collect();
        shards.dedup();
        assert!(shards.len() >= 3, "{shards:?}");
        let verified = store.verify(false).await.unwrap();
        assert_eq!((verified.entries, verified.damaged.len()), (1, 0));
        // The entry stays as long as one of its writers does.
        let last = writers.pop().unwrap();
        for writer in writers {
            writer.finish().await.unwrap();
        }
        assert!(store.remove(&KEY).await.is_err());
        assert_eq!(store.list().await.unwrap()[0].rows, 360);
        // The next writer takes the first shard.
        let only = reader.writer().await.unwrap().unwrap();
        only.finish().await.unwrap();
        last.finish().await.unwrap();
        store.remove(&KEY).await.unwrap();
        assert_eq!(store.list().await.unwrap(), []);
        assert!(store.shared.files.is_unused(&KEY).await.unwrap());
    }
}

#[tokio::test]
async fn a_writer_removes_the_leftovers_of_its_own_shard() {
    let folder = tempfile::tempdir().unwrap();
    let store = directory(&folder, small()).await;
    let entry = entry(&store).await;
    let first = entry.shared_writer().await.unwrap().unwrap();
    let mut second = entry.shared_writer().await.unwrap().unwrap();
    append(&mut second, 0..10).await.unwrap();
    second.flush().await.unwrap();
    // As another process sees it, this segment of the second writer is not published yet.
    let unlisted = |shard: &str| {
        let name = format!("{KEY}/{shard}{}.arrows", "a".repeat(32));
        folder.path().join(name)
    };
    let paths = [unlisted(""), unlisted("1/")];
    for path in &paths {
        std::fs::write(path, "unfinished").unwrap();
    }
    first.finish().await.unwrap();
    let first = entry.shared_writer().await.unwrap().unwrap();
    assert_eq!(paths.each_ref().map(|path| path.exists()), [false, true]);
    drop(second);
    let second = entry.shared_writer().await.unwrap().unwrap();
    assert!(!paths[1].exists());
    assert_eq!(there(&entry, &[3, 7, 12]).await, [3, 7]);
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_whole_segments_while_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    let written = entry(&directory(&folder, small()).await).await;
    let mut writer = written.writer().await.unwrap().unwrap();
    let (done, _) = tokio::sync::watch::channel(false);
    let mut readers = Vec::new();
    for _ in 0..3 {
        let store = directory(&folder, small()).await;
        let done = done.subscribe();
        readers.push(tokio::spawn(async move {
            let entry = entry(&store).await;
            let all = shuffled(300);
            let mut seen = 0;
            loop {
                let last = *done.borrow();
                entry.refresh().await.unwrap();
                let got = there(&entry, &all).await.len();
                assert!(got >= seen, "rows went away");
                seen = got;
                if last {
                    return (seen, store.counters().damaged);
                }
            }
        }));
    }
    for rows in shuffled(300).chunks(10) {
        append(&mut writer, rows.iter().copied()).await.unwrap();
        writer.flush().await.unwrap();
    }
    writer.finish().await.unwrap();
    done.send(true).unwrap();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), (300, 0));
    }
}

#[tokio::test]
async fn a_writer_that_fell_asleep_is_taken_over() {
    let (store, memory, clock) = in_memory(small()).await;
    let slow_entry = entry(&store).await;
    let mut slow = slow_entry.writer().await.unwrap().unwrap();
    append(&mut slow, 0..10).await.unwrap();
    slow.flush().await.unwrap();
    let other = over(&memory, &clock, small()).await;
    // A writer that keeps writing renews its lease.
    clock.advance(Duration::from_secs(200));
    append(&mut slow, 10..20).await.unwrap();
    slow.flush().await.unwrap();
    clock.advance(Duration::from_secs(200));
    let fast_entry = entry(&other).await;
    assert!(fast_entry.writer().await.unwrap().is_none());
    clock.advance(Duration::from_secs(200));
    let mut fast = fast_entry.writer().await.unwrap().unwrap();
    append(&mut slow, 20..30).await.unwrap();
    let error = slow.flush().await.unwrap_err();
    assert!(matches!(error, CacheError::LeaseLost { .. }), "{error}");
    assert_eq!(slow.state(), WriterState::Disabled);
    slow.finish().await.unwrap();
    append(&mut fast, 25..40).await.unwrap();
    fast.finish().await.unwrap();
    let all: Vec<u64> = (0..40).collect();
    let expected: Vec<u64> = (0..20).chain(25..40).collect();
    let third = over(&memory, &clock, small()).await;
    assert_eq!(there(&entry(&third).await, &all).await, expected);
    assert!(third.verify(false).await.unwrap().damaged.is_empty());
}

#[tokio::test]
async fn clocks_that_differ_leave_one_correct_entry() {
    let (store, memory, _) = in_memory(small()).await;
    let behind_entry = entry(&store).await;
    let mut behind = behind_entry.writer().await.unwrap().unwrap();
    // By the clock `ahead` the lease has expired, but not by the clock of the lease's holder.
    let ahead = Arc::new(ManualClock::default());
    ahead.advance(Duration::from_secs(400));
    let other = over(&memory, &ahead, small()).await;
    let ahead_entry = entry(&other).await;
    let mut fast = ahead_entry.writer().await.unwrap().unwrap();
    append(&mut fast, 0..10).await.unwrap();
    fast.flush().await.unwrap();
    append(&mut behind, 5..20).await.unwrap();
    let error = behind.flush().await.unwrap_err();
    assert!(matches!(error, CacheError::LeaseLost { .. }), "{error}");
    append(&mut fast, 10..15).await.unwrap();
    fast.finish().await.unwrap();
    // Finishing the old writer must not release the lease of the new writer.
    behind.finish().await.unwrap();
    let all: Vec<u64> = (0..20).collect();
    assert_eq!(
        there(&entry(&other).await, &all).await,
        (0..15).collect::<Vec<_>>()
    );
    let verified = other.verify(false).await.unwrap();
    assert_eq!((verified.segments, verified.damaged.len()), (2, 0));
}

#[tokio::test]
async fn a_full_disk_ends_writing_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    for free in (0..60_000).step_by(1700) {
        std::fs::remove_dir_all(folder.path()).ok();
        let disk = Arc::new(Disk {
            free: AtomicU64::new(free),
        });
        let hook = Arc::clone(&disk);
        let wrap = |inner| Arc::new(Hooked { inner, hook }) as Arc<dyn ObjectStore>;
        let clock = Arc::new(ManualClock::default());
        let store = CacheStore::in_directory(folder.path(), small(), clock, wrap)
            .await
            .unwrap();
        let entry = entry(&store).await;
        let mut writer = entry.writer().await.unwrap().unwrap();
        let mut errors = 0;
        for rows in shuffled(300).chunks(30) {
            errors += u32::from(append(&mut writer, rows.iter().copied()).await.is_err());
        }
        assert!(errors <= 1, "once is enough");
        if errors == 1 {
            assert_eq!(writer.state(), WriterState::Disabled);
            // The failed writer has released its right to write, so that another writer can be
            // created.
            assert!(entry.writer().await.unwrap().is_some());
        }
        writer.finish().await.ok();
        let all: Vec<u64> = (0..300).collect();
        let seen = there(&entry, &all).await;
        let again = self::entry(&directory(&folder, small()).await).await;
        let again_seen = there(&again, &all).await;
        assert_eq!(seen, again_seen, "{free}");
        let verified = store.verify(false).await.unwrap();
        assert!(verified.damaged.is_empty());
        assert_eq!(
            files(folder.path(), ".arrows").len() as u64,
            verified.segments
        );
        disk.free.store(u64::MAX, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = directory(&folder, small()).await;
    let entry = entry(&store).await;
    let mut writer = entry.writer().await.unwrap().unwrap();
    // A file with the name of the entry's folder makes writing fail.
    std::fs::write(folder.path().join(KEY.to_string()), "in the way").unwrap();
    append(&mut writer, 0..3).await.unwrap();
    let error = writer.flush().await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the cache cannot write '0707"),
        "{error}"
    );
    assert_eq!(writer.state(), WriterState::Disabled);
    append(&mut writer, 3..6).await.unwrap();
    assert_eq!(writer.pending_bytes(), 0);
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Stores::default()
        .open(file.to_str().unwrap(), small())
        .await
        .unwrap_err();
    assert!(
        error.is_user() && error.to_string().contains("file"),
        "{error}"
    );
}

/// A store that refuses writes, and repeats the request in its answer.
#[derive(Debug)]
struct Talkative;

impl Hook for Talkative {
    fn before_put(&self, _: &Path, _: &PutPayload) -> object_store::Result<()> {
        let body = "<Error><Code>ExpiredToken</Code><Token-0>secret</Token-0></Error>";
        Err(object_store::Error::Generic {
            store: "S3",
            source: format!("status code: 400 Bad Request: {body}").into(),
        })
    }
}

#[tokio::test]
async fn errors_of_a_store_show_nothing_that_the_store_sent_but_its_code() {
    let (inner, hook) = (Arc::new(InMemory::new()), Arc::new(Talkative));
    let store = Store::new("s3://b", Arc::new(Hooked { inner, hook }));
    let clock = Arc::new(ManualClock::default());
    let store = CacheStore::in_objects(store, Path::from("a"), small(), clock).await;
    let error = store.mark().await.unwrap_err();
    let text = error.to_string();
    let cause = "the cache cannot write 's3://b/a/mark': the store refused the request (400 ExpiredToken); check";
    assert!(text.starts_with(cause), "{text}");
    assert!(!format!("{error:?}{text}").contains("secret"), "{error:?}");
    assert!(std::error::Error::source(&error).is_none());
}
