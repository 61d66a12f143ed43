//! A cluster in this process, and a handler whose leases say what to do.

use std::collections::HashSet;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, BinaryArray, DictionaryArray, FixedSizeListArray, Int32Array, RecordBatch,
    UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use bytes::Bytes;
use forebay_cluster::ballista::{
    BallistaEngine, EngineOptions, Scheduler, SchedulerOptions, Worker, WorkerOptions,
};
use forebay_cluster::engine::{
    BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, LeaseStaging,
};
use forebay_cluster::handler::{BlobError, BlobSource, HandlerError, HandlerOutput, LeaseHandler};
use futures::FutureExt;
use futures::future::BoxFuture;

/// Longest time that anything here may take on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(180);

/// Polls `condition` until it returns a value.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(
            start.elapsed() < DEADLINE,
            "{what} did not happen in {DEADLINE:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Fails when `work` takes too long.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, work).await;
    done.unwrap_or_else(|_| panic!("{what} did not end in {DEADLINE:?}"))
}

/// Runs leases whose payload is a command: `number N`, `empty`, `batches`, `large N`, `unfit`,
/// `panic`, `wait KEY` (until the test releases the key), `mark FILE`
/// (creates the file and waits for ever), `blob HASH`.
#[derive(Debug, Default, Clone)]
pub(crate) struct TestHandler {
    pub(crate) started: Arc<AtomicUsize>,
    pub(crate) dropped: Arc<AtomicUsize>,
    released: Arc<Mutex<HashSet<String>>>,
}

impl TestHandler {
    pub(crate) fn release(&self, key: &str) {
        self.released.lock().unwrap().insert(key.to_owned());
    }
}

/// Counts the futures that were dropped before their end.
struct DropCount(Option<Arc<AtomicUsize>>);

impl Drop for DropCount {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

pub(crate) fn numbers(values: impl IntoIterator<Item = u64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(UInt64Array::from_iter_values(values));
    RecordBatch::try_from_iter([("number", column)]).unwrap()
}

pub(crate) fn large(rows: usize) -> RecordBatch {
    let row = vec![7_u8; 1 << 20];
    let column: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..rows).map(|_| &row)));
    RecordBatch::try_from_iter([("row", column)]).unwrap()
}

impl LeaseHandler for TestHandler {
    fn compute(
        &self,
        payload: Bytes,
        blobs: Arc<dyn BlobSource>,
    ) -> BoxFuture<'static, Result<HandlerOutput, HandlerError>> {
        let handler = self.clone();
        async move {
            handler.started.fetch_add(1, Ordering::SeqCst);
            let mut guard = DropCount(Some(Arc::clone(&handler.dropped)));
            let output = handler.run(&payload, &*blobs).await;
            guard.0 = None;
            output
        }
        .boxed()
    }
}

impl TestHandler {
    async fn run(
        &self,
        payload: &Bytes,
        blobs: &dyn BlobSource,
    ) -> Result<HandlerOutput, HandlerError> {
        let command = std::str::from_utf8(payload).unwrap();
        let (name, argument) = command.split_once(' ').unwrap_or((command, ""));
        let unfit = |cause| Err(HandlerError::Unfit { cause });
        let batches = match name {
            "number" => {
                let number: u64 = argument.parse().unwrap();
                vec![numbers(number..number + 3)]
            }
            "empty" => vec![],
            "batches" => vec![numbers([1, 2]), numbers([]), numbers([3])],
            "dictionaries" => dictionaries(),
            "large" => vec![large(argument.parse().unwrap())],
            "unfit" => return unfit("the mount is missing".to_owned()),
            "panic" => panic!("a broken row"),
            "wait" => loop {
                if self.released.lock().unwrap().contains(argument) {
                    break vec![numbers([9])];
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            },
            // Tells another process that it runs.
            "mark" => {
                std::fs::write(argument, "").unwrap();
                futures::future::pending().await
            }
            "blob" => match blobs.get(parse(argument)).await {
                Ok(blob) => vec![numbers([blob.len() as u64])],
                Err(BlobError::Missing(hash)) => return unfit(format!("missing {hash}")),
                Err(error) => return unfit(error.to_string()),
            },
            other => panic!("unknown command {other}"),
        };
        Ok(HandlerOutput {
            batches,
            summary: payload.clone(),
        })
    }
}

fn parse(hash: &str) -> BlobHash {
    let byte = |position| u8::from_str_radix(&hash[2 * position..2 * position + 2], 16).unwrap();
    BlobHash::from_bytes(std::array::from_fn(byte))
}

/// A scheduler, workers and a client in this process.
pub(crate) struct TestCluster {
    pub(crate) scheduler: Scheduler,
    pub(crate) workers: Vec<Worker>,
    pub(crate) handler: TestHandler,
    pub(crate) engine: BallistaEngine,
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Options for a machine that is too busy to send a heartbeat every second.
pub(crate) fn scheduler_options(listen: SocketAddr) -> SchedulerOptions {
    let mut options = SchedulerOptions::new(listen);
    options.worker_timeout = DEADLINE * 2;
    options
}

impl TestCluster {
    /// Starts a cluster of workers with two slots each.
    pub(crate) async fn start(workers: usize) -> Self {
        Self::with(workers, |_| {}, |_| {}).await
    }

    pub(crate) async fn with(
        workers: usize,
        scheduler: impl FnOnce(&mut SchedulerOptions),
        worker: impl Fn(&mut WorkerOptions),
    ) -> Self {
        let mut options = scheduler_options(loopback());
        scheduler(&mut options);
        let security = options.security.clone();
        let scheduler = Scheduler::start(options).await.unwrap();
        let address = scheduler.address().to_string();
        let handler = TestHandler::default();
        let mut cluster = Vec::new();
        for _ in 0..workers {
            let mut options = WorkerOptions::new(&address, 2);
            options.security = security.clone();
            worker(&mut options);
            cluster.push(
                Worker::start(options, Arc::new(handler.clone()))
                    .await
                    .unwrap(),
            );
        }
        let mut options = EngineOptions::new(&address);
        options.security = security;
        let engine = BallistaEngine::new(&options).unwrap();
        let started = Self {
            scheduler,
            workers: cluster,
            handler,
            engine,
        };
        started.wait_for_workers(workers).await;
        started
    }

    pub(crate) async fn wait_for_workers(&self, count: usize) {
        wait_for_workers(&self.engine, count).await;
    }

    pub(crate) async fn run(&self, command: &str) -> Result<LeaseOutput, EngineError> {
        within(command, self.engine.submit(lease(command, 0))).await
    }
}

pub(crate) async fn wait_for_workers(engine: &BallistaEngine, count: usize) {
    until("the registration of all workers", async || {
        let workers = engine.workers().await.ok()?;
        (workers.len() == count).then_some(())
    })
    .await;
}

pub(crate) fn lease(command: &str, order: u64) -> LeaseRequest {
    LeaseRequest {
        payload: Bytes::from(command.to_owned()),
        affinity: order / 10,
        staging: LeaseStaging::default(),
        order,
        avoid: vec![],
    }
}

/// Two batches whose dictionaries differ, with a nested field that has metadata.
pub(crate) fn dictionaries() -> Vec<RecordBatch> {
    let metadata = [("shape".to_owned(), "[2]".to_owned())].into();
    let item = Arc::new(Field::new("item", DataType::Int32, true).with_metadata(metadata));
    let keyed = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let metadata = [("ARROW:extension:name".to_owned(), "forebay.test".to_owned())].into();
    let list = Field::new("list", DataType::FixedSizeList(Arc::clone(&item), 2), true);
    let schema = Arc::new(Schema::new(vec![
        Field::new("label", keyed, true),
        list.with_metadata(metadata),
    ]));
    let batch = |labels: [Option<&str>; 2]| {
        let labels: DictionaryArray<Int32Type> = labels.into_iter().collect();
        let values = Arc::new(Int32Array::from_iter_values(0..4));
        let list = FixedSizeListArray::try_new(Arc::clone(&item), 2, values, None).unwrap();
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(labels), Arc::new(list)]).unwrap()
    };
    vec![batch([Some("a"), None]), batch([Some("b"), Some("c")])]
}

/// Returns the answer to an HTTP request without a token.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> String {
    http_get_with(address, path, "").await
}

/// Returns the answer to an HTTP request with `headers`, each of which ends its line.
pub(crate) async fn http_get_with(address: SocketAddr, path: &str, headers: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    within("an answer", connection.read_to_end(&mut answer))
        .await
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
