//! Tests of open objects: which bytes they request, and what they return.

use std::sync::Arc;

use datafusion::common::{DataFusionError, exec_err};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::*;
use crate::objects::testing::{Recorded, recorded};
use crate::source::SourceError;
use crate::task;

const MIB: u64 = 1 << 20;

fn content(length: u64) -> Vec<u8> {
    (0..length).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Creates an object `o` with `length` bytes. Calls `work` with the open object on a thread for
/// blocking work, and returns its result and the requested ranges.
async fn reading<T: Send + 'static>(
    length: u64,
    work: impl FnOnce(&mut Input) -> T + Send + 'static,
) -> (T, Vec<Range<u64>>) {
    let (_, store) = recorded(&[("o", &content(length))]).await;
    let object = Arc::new(store.object("o").await);
    let done = task::blocking("reading", move || {
        let (mut input, size) = InputFile::Object(object).open().unwrap();
        assert_eq!(size, length);
        work(&mut input)
    });
    (done.await.unwrap(), store.ranges())
}

#[tokio::test]
async fn a_file_that_is_read_in_order_is_requested_once() {
    let length = 9 * MIB + 7;
    let (bytes, mut ranges) = reading(length, move |input| {
        input.read_only(5..length - 2).unwrap();
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes).unwrap();
        bytes
    })
    .await;
    assert!(bytes == content(length)[5..length as usize - 2]);
    ranges.sort_by_key(|range| range.start);
    let parts = [
        5..4 * MIB + 5,
        4 * MIB + 5..8 * MIB + 5,
        8 * MIB + 5..length - 2,
    ];
    assert_eq!(ranges, parts);
}

#[tokio::test]
async fn a_reader_that_skips_far_requests_little_and_one_that_goes_on_requests_more() {
    let (headers, ranges) = reading(32 * MIB, |input| {
        let mut headers = Vec::new();
        for at in [0, 10 * MIB, 20 * MIB] {
            let mut header = [0; 512];
            input.seek(SeekFrom::Start(at)).unwrap();
            input.read_exact(&mut header).unwrap();
            headers.push(header.to_vec());
        }
        headers
    })
    .await;
    let all = content(32 * MIB);
    assert_eq!(headers[2], all[20 * MIB as usize..][..512]);
    let first = 64 << 10;
    let at = |start: u64| start..start + first;
    assert_eq!(ranges, [at(0), at(10 * MIB), at(20 * MIB)]);

    let (sum, ranges) = reading(20 * MIB, |input| {
        let mut read = 0;
        let mut part = vec![0; 100 << 10];
        // Entries of 100 KiB: the second half of each is skipped.
        while input.seek(SeekFrom::Current(100 << 10)).unwrap() + (100 << 10) < 20 * MIB {
            input.read_exact(&mut part).unwrap();
            read += part.len();
        }
        read
    })
    .await;
    assert!(sum > 9_000_000);
    assert!(ranges.len() < 14, "{ranges:?}");
    let mut end = 0;
    for range in ranges {
        assert!(range.start >= end, "bytes are requested twice");
        end = range.end;
    }
}

#[tokio::test]
async fn fetched_ranges_are_read_without_requests() {
    let (found, ranges) = reading(20 * MIB, |input| {
        input.fetch(&[0..6, 100..200, 5 * MIB..14 * MIB]).unwrap();
        // These bytes are at hand.
        input.fetch(&[0..6, 6 * MIB..7 * MIB]).unwrap();
        let mut tail = [0; 10];
        input.seek(SeekFrom::Start(14 * MIB - 10)).unwrap();
        input.read_exact(&mut tail).unwrap();
        let across = input.read_at(5 * MIB, 9 * MIB).unwrap();
        (input.read_at(100, 100).unwrap(), across, tail)
    })
    .await;
    let all = content(20 * MIB);
    assert_eq!(found.0, all[100..200]);
    assert!(found.1 == all[5 * MIB as usize..14 * MIB as usize]);
    assert_eq!(found.2, all[14 * MIB as usize - 10..14 * MIB as usize]);
    assert_eq!(ranges, [0..200, 5 * MIB..13 * MIB, 13 * MIB..14 * MIB]);
}

#[tokio::test]
async fn large_ranges_are_kept_in_a_file() {
    let length = 70 * MIB;
    let (is_same, ranges) = reading(length, move |input| {
        input.fetch(std::slice::from_ref(&(0..length))).unwrap();
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes).unwrap();
        bytes == content(length) && input.read_at(3, 9 * MIB).unwrap() == bytes[3..][..9 << 20]
    })
    .await;
    assert!(is_same);
    assert_eq!(ranges.iter().map(|r| r.end - r.start).sum::<u64>(), length);
}

async fn replace(store: &Arc<Recorded>, content: &[u8]) {
    let path = Path::from("o");
    store
        .inner
        .put(&path, content.to_vec().into())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_object_that_was_written_again_is_no_damage_of_its_format() {
    let (_, store) = recorded(&[("o", b"abcd")]).await;
    let object = Arc::new(store.object("o").await);
    let read = async |object: &Arc<_>| {
        let object = Arc::clone(object);
        let read = move || {
            with_store_failures(|| {
                let (mut input, _) = InputFile::Object(object).open()?;
                // As a parser does, the text of the error is lost.
                match input.read_at(1, 2) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => exec_err!("the file is damaged"),
                }
            })
        };
        task::blocking("reading", read).await.unwrap()
    };
    assert_eq!(read(&object).await.unwrap(), b"bc".as_slice());
    replace(&store, b"efgh").await;
    let error = read(&object).await.unwrap_err();
    let DataFusionError::External(source) = &error else {
        panic!("{error}");
    };
    assert!(matches!(source.downcast_ref(), Some(SourceError::Store(_))));
    assert!(
        error.to_string().contains("'s3://b/o' changed since"),
        "{error}"
    );
    store.inner.delete(&Path::from("o")).await.unwrap();
    let error = read(&object).await.unwrap_err();
    assert!(
        error.to_string().contains("'s3://b/o' is gone since"),
        "{error}"
    );
}
