//! The driver over an engine of this process, in paused time.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_cluster::codec::{LeaseCodec, LeaseResults};
use forebay_cluster::driver::{SegmentResult, run};
use forebay_cluster::engine::{
    BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, WorkerId,
};
use forebay_cluster::error::ClusterError;
use forebay_cluster::window::{
    ByteSize, LeaseSegment, SegmentInfo, SegmentPiece, StagedData, WindowSettings,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

/// A range of numbers, which its segment's result repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    first: u32,
    count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NumbersResult(Vec<u32>);

impl ByteSize for NumbersResult {
    fn bytes(&self) -> u64 {
        4 * self.0.len() as u64
    }
}

struct NumbersCodec;

impl LeaseCodec for NumbersCodec {
    type Segment = Numbers;
    type Output = NumbersResult;

    fn encode(&self, segments: &[LeaseSegment<Numbers>]) -> Bytes {
        let words = segments
            .iter()
            .flat_map(|segment| [segment.name.first, segment.name.count]);
        words.flat_map(u32::to_le_bytes).collect()
    }

    fn decode(
        &self,
        segments: &[LeaseSegment<Numbers>],
        output: LeaseOutput,
    ) -> Result<LeaseResults<NumbersResult>, String> {
        let mut numbers = words(&output.summary).into_iter();
        let results = segments.iter().map(|segment| {
            let count = segment.name.count as usize;
            NumbersResult(numbers.by_ref().take(count).collect())
        });
        Ok(LeaseResults {
            segments: results.collect(),
            took: Duration::from_millis(5),
        })
    }

    fn split(&self, segment: &Numbers, max_rows: u64) -> Vec<SegmentPiece<Numbers>> {
        let end = segment.first + segment.count;
        let starts = (segment.first..end).step_by(max_rows as usize);
        let pieces = starts.map(|first| {
            let count = (end - first).min(max_rows as u32);
            SegmentPiece {
                name: Numbers { first, count },
                rows: u64::from(count),
            }
        });
        pieces.collect()
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}

/// Computes leases in this process. Attempts with these numbers fail or never end.
#[derive(Debug, Default)]
struct TestEngine {
    failures: Mutex<BTreeMap<usize, EngineError>>,
    hanging: Vec<usize>,
    poison: Option<u32>,
    submitted: AtomicUsize,
    running: Arc<AtomicUsize>,
}

struct RunningGuard(Arc<AtomicUsize>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl LeaseEngine for TestEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        Ok(BlobHash::of(&blob))
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let number = self.submitted.fetch_add(1, Ordering::SeqCst);
        let worker = WorkerId(format!("w{number}"));
        let mut failure = self.failures.lock().expect("a lock").remove(&number);
        let is_hanging = self.hanging.contains(&number);
        let ranges = words(&lease.payload);
        let numbers = ranges
            .chunks_exact(2)
            .flat_map(|range| range[0]..range[0] + range[1]);
        let numbers: Vec<u32> = numbers.collect();
        if self.poison.is_some_and(|poison| numbers.contains(&poison)) {
            let worker = Some(worker.clone());
            failure = Some(EngineError::WorkerLost {
                worker,
                cause: "killed".into(),
            });
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        let guard = RunningGuard(Arc::clone(&self.running));
        async move {
            let _guard = guard;
            if is_hanging {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            match failure {
                Some(error) => Err(error),
                None => Ok(LeaseOutput {
                    worker,
                    batches: Vec::new(),
                    summary: numbers.into_iter().flat_map(u32::to_le_bytes).collect(),
                }),
            }
        }
        .boxed()
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        Ok(vec![WorkerId("a".into()), WorkerId("b".into())])
    }
}

fn segments(count: u32) -> Vec<SegmentInfo<Numbers>> {
    let segment = |number| SegmentInfo {
        name: Numbers {
            first: 10 * number,
            count: 10,
        },
        bytes: 40,
        work: Duration::from_millis(3),
        affinity: u64::from(number / 100),
        staged: StagedData::default(),
        rows: 10,
        is_divisible: true,
    };
    (0..count).map(segment).collect()
}

fn assert_numbers(results: Vec<Result<SegmentResult<NumbersResult>, ClusterError>>, count: u32) {
    assert_eq!(results.len(), count as usize);
    for (sequence, result) in results.into_iter().enumerate() {
        let result = result.expect("a result");
        assert_eq!(result.sequence, sequence as u64);
        let numbers: Vec<u32> = result.results.into_iter().flat_map(|part| part.0).collect();
        let first = 10 * sequence as u32;
        assert_eq!(numbers, (first..first + 10).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_complete_and_in_order_through_failures() {
    let lost = EngineError::WorkerLost {
        worker: None,
        cause: "killed".into(),
    };
    let unavailable = EngineError::Unavailable {
        cause: "restart".into(),
    };
    let unfit = EngineError::WorkerUnfit {
        worker: WorkerId("a".into()),
        cause: "full".into(),
    };
    let failures = [(1, lost), (3, unavailable), (5, unfit)];
    let engine = Arc::new(TestEngine {
        failures: Mutex::new(failures.into()),
        hanging: vec![0, 7],
        ..TestEngine::default()
    });
    let running = Arc::clone(&engine.running);
    let started = tokio::time::Instant::now();
    let source = stream::iter(segments(300)).then(|segment| async move {
        if segment.name.first % 500 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        segment
    });
    let stream = run(engine, source, NumbersCodec, WindowSettings::default());
    assert_numbers(stream.collect().await, 300);
    assert!(
        started.elapsed() < Duration::from_secs(12),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_poison_row_ends_the_stream_behind_the_segments_before_it() {
    let engine = Arc::new(TestEngine {
        poison: Some(123),
        ..TestEngine::default()
    });
    let stream = run(
        engine,
        stream::iter(segments(40)),
        NumbersCodec,
        WindowSettings::default(),
    );
    let mut results: Vec<_> = stream.collect().await;
    let error = results
        .pop()
        .expect("a result")
        .expect_err("an error")
        .to_string();
    assert_eq!(
        error,
        "6 workers ended while they computed row 3 of segment 12; the last: killed"
    );
    assert_numbers(results, 12);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_cancels_its_leases() {
    let engine = Arc::new(TestEngine {
        hanging: (1..100).collect(),
        ..TestEngine::default()
    });
    let running = Arc::clone(&engine.running);
    let mut stream = run(
        engine,
        stream::iter(segments(40)),
        NumbersCodec,
        WindowSettings::default(),
    );
    assert!(stream.next().await.expect("a result").is_ok());
    assert!(running.load(Ordering::SeqCst) > 0);
    drop(stream);
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_needs_no_more_ends_the_stream() {
    let engine = Arc::new(TestEngine::default());
    let mut stream = run(
        engine,
        stream::iter(segments(40)),
        NumbersCodec,
        WindowSettings::default(),
    );
    let mut results = vec![stream.next().await.expect("a result")];
    stream.skip_from(5);
    while let Some(result) = stream.next().await {
        results.push(result);
    }
    assert_numbers(results, 5);
}
