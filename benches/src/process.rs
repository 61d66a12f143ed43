//! The processes of a cluster that is measured, and their CPU time.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::array::{ArrayRef, FixedSizeBinaryArray, RecordBatch};
use bytes::Bytes;
use forebay_cluster::ballista::{Scheduler, SchedulerOptions, Worker, WorkerOptions};
use forebay_cluster::handler::{BlobSource, HandlerError, HandlerOutput, LeaseHandler};
use forebay_cluster::job_handler::JobHandler;
use forebay_cluster::jobs::JobSettings;
use futures::FutureExt;
use futures::future::BoxFuture;

/// First bytes of the payload of a lease that computes nothing, in front of the bytes of its result
/// as a decimal number.
pub(crate) const IDLE: &[u8] = b"idle ";

/// First bytes of the payload of a lease that waits, in front of the bytes of its result, milliseconds, and a file to
/// which the worker writes its process id.
const PAUSE: &[u8] = b"pause ";

/// Returns the payload of a lease that takes `time`.
pub(crate) fn pause(bytes: u64, time: Duration, file: &Path) -> Bytes {
    let text = format!("{bytes} {} {}", time.as_millis(), file.display());
    Bytes::from([PAUSE, text.as_bytes()].concat())
}

/// Bytes of a row of a result that is not computed.
const ROW: usize = 64 << 10;

/// A process of this program that ends with its value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// The address on which it listens.
    pub(crate) address: String,
}

impl Process {
    /// Starts this program with `arguments`, and waits until it prints its address.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        let output = child.stdout.take().ok_or("no standard output")?;
        BufReader::new(output).read_line(&mut address)?;
        let address = address.trim().to_owned();
        Ok(Self { child, address })
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Returns the seconds of CPU time that the process took so far.
    pub(crate) fn cpu(&self) -> Result<f64, Box<dyn Error>> {
        cpu_of(&self.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the seconds of CPU time that a process took so far, in all of its threads.
pub(crate) fn cpu_of(process: &str) -> Result<f64, Box<dyn Error>> {
    /// Linux counts the time of processes in hundredths of seconds on all its platforms (`USER_HZ`).
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |nth: usize| {
        fields
            .get(nth)
            .ok_or("no time")?
            .parse::<f64>()
            .map_err(Box::<dyn Error>::from)
    };
    Ok((ticks(11)? + ticks(12)?) / TICKS)
}

/// Returns any free port of the loopback address.
pub(crate) const fn loopback() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// Runs a scheduler until the process is killed.
pub(crate) async fn scheduler() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::start(SchedulerOptions::new(loopback())).await?;
    println!("{}", scheduler.address());
    std::future::pending().await
}

/// Runs a worker with two slots until the process is killed.
pub(crate) async fn worker(scheduler: &str) -> Result<(), Box<dyn Error>> {
    let handler = IdleOrJob(JobHandler::new(JobSettings::default()));
    let options = WorkerOptions::new(scheduler, 2);
    let worker = Worker::start(options, Arc::new(handler)).await?;
    println!("{}", worker.address());
    std::future::pending().await
}

/// Answers leases that compute nothing, and computes the others.
#[derive(Debug)]
struct IdleOrJob(JobHandler);

impl LeaseHandler for IdleOrJob {
    fn compute(
        &self,
        payload: Bytes,
        blobs: Arc<dyn BlobSource>,
    ) -> BoxFuture<'static, Result<HandlerOutput, HandlerError>> {
        if let Some(text) = payload.strip_prefix(PAUSE) {
            let text = String::from_utf8_lossy(text).into_owned();
            return async move {
                let mut parts = text.splitn(3, ' ');
                let mut part = || parts.next().unwrap_or_default();
                let (bytes, millis, file) = (part(), part().parse().unwrap_or(0), part());
                if let Err(error) = std::fs::write(file, std::process::id().to_string()) {
                    let cause = format!("{file}: {error}");
                    return Err(HandlerError::Unfit { cause });
                }
                tokio::time::sleep(Duration::from_millis(millis)).await;
                idle(bytes)
            }
            .boxed();
        }
        let Some(bytes) = payload.strip_prefix(IDLE) else {
            return self.0.compute(payload, blobs);
        };
        let output = idle(&String::from_utf8_lossy(bytes));
        futures::future::ready(output).boxed()
    }
}

/// Returns a result of `bytes` bytes, a decimal number.
fn idle(bytes: &str) -> Result<HandlerOutput, HandlerError> {
    let unfit = || HandlerError::Unfit {
        cause: "no number of bytes".to_owned(),
    };
    let batch = { bytes.parse().ok() }.and_then(batch).ok_or_else(unfit)?;
    Ok(HandlerOutput {
        batches: vec![batch],
        summary: Bytes::new(),
    })
}

/// Returns a batch of `bytes` bytes that do not compress. Batches share their rows with the largest one.
pub(crate) fn batch(bytes: usize) -> Option<RecordBatch> {
    const MOST: usize = 64 << 20;
    static ROWS: OnceLock<Option<FixedSizeBinaryArray>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| {
        let mut state = 1_u64;
        // xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let bytes: Vec<u8> = words.take(MOST / 8).flatten().collect();
        FixedSizeBinaryArray::try_from_iter(bytes.chunks(ROW)).ok()
    });
    let rows = rows.as_ref()?.slice(0, bytes.div_ceil(ROW).min(MOST / ROW));
    RecordBatch::try_from_iter([("row", Arc::new(rows) as ArrayRef)]).ok()
}
