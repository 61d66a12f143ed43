//! The child process that reads malformed files.

use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay::{Error, RunConfig, Session};

use super::mutate::mutated;
use super::samples::{Format, samples};
use crate::draw::Draw;

/// Environment variable that gives a child process its cases: format, number of the first case,
/// number of cases.
pub(super) const CASES: &str = "FOREBAY_FUZZ_CHILD";

/// Maximum resident memory of a child process, in bytes.
const MAX_RESIDENT: u64 = 400 << 20;

/// Limit of a child's address space, in bytes. Unlike resident memory, it includes allocations that
/// are never written.
const MAX_ADDRESSES: u64 = 6 << 30;

/// Time limit for one case, generous because the machine may be busy.
const MAX_TIME: Duration = Duration::from_secs(60);

pub(super) fn is_child() -> bool {
    std::env::var_os(CASES).is_some()
}

/// Runs the cases that the environment variable `CASES` names. In the test run of the parent
/// process, the variable is not set, and this test does nothing.
#[test]
fn child() {
    let Ok(cases) = std::env::var(CASES) else {
        return;
    };
    let words: Vec<&str> = cases.split(' ').collect();
    let format = Format::ALL
        .into_iter()
        .find(|f| f.name() == words[0])
        .unwrap();
    let (first, count): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    limit_addresses();
    // Decoders may panic on damaged bytes. These panics are caught, and must not be printed.
    std::panic::set_hook(Box::new(|_| {}));
    let watched = Arc::new(Watch::default());
    watch(&watched);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let samples = samples(format);
    for case in first..first + count {
        println!("case {case} begins");
        let started = Instant::now();
        watched.begin();
        let mut draw = Draw::new(case.wrapping_mul(0x9e37_79b9) ^ words[0].len() as u64);
        let sample = draw.pick(&samples);
        // The first cases are the sample files without damage.
        let bytes = if case < samples.len() as u64 {
            samples[case as usize].clone()
        } else {
            let other = draw.pick(&samples);
            mutated(&mut draw, &sample, &other)
        };
        let is_sound = case < samples.len() as u64;
        let outcome = runtime.block_on(read(format, &bytes, &mut draw));
        let told = match outcome {
            Ok(rows) if is_sound && rows == 0 => "wrong a sound file has no rows".to_owned(),
            Err(error) if is_sound => format!("wrong a sound file is refused: {error}"),
            Err(error) if error.contains("nternal error") || error.contains("panicked") => {
                format!("wrong {error}")
            }
            outcome => {
                let word = if outcome.is_ok() { "read" } else { "refused" };
                let message = outcome.err().unwrap_or_default().replace('\n', " ");
                format!(
                    "{word} {} {} {message}",
                    started.elapsed().as_millis(),
                    watched.peak() >> 20
                )
            }
        };
        println!("case {case} {told}");
    }
    exit(0);
}

/// Reads a file of the given bytes with a random pipeline, and returns the number of rows or the
/// error.
async fn read(format: Format, bytes: &[u8], draw: &mut Draw) -> Result<usize, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(format!("t.{}", format.extension()));
    std::fs::write(&path, bytes).unwrap();
    let text = |error: Error| error.to_string();
    run(format, &path, draw).await.map_err(text)
}

async fn run(format: Format, path: &Path, draw: &mut Draw) -> Result<usize, Error> {
    let session = Session::new();
    let location = path.display();
    let (columns, predicates): (_, &[&str]) = match format {
        Format::Image => ("resize(decode_image(image), 8, 8) AS pixels", &["true"]),
        Format::WebDataset => ("*", &["true", "txt < 'n5'"]),
        _ => ("*", &["true", "true", "id > 20", "name < 'n5' AND id < 30"]),
    };
    let shuffle = draw.pick(&["", "SHUFFLE WITHIN 20 ROWS", "SHUFFLE GLOBALLY"]);
    let predicate = draw.pick(predicates);
    let function = format.function();
    let sql = format!(
        "CREATE PIPELINE p AS SELECT {columns} FROM {function}('{location}') WHERE {predicate} {shuffle} BATCH 16"
    );
    session.execute(&sql).await?;
    let config = RunConfig {
        threads: Some(1),
        epochs: Some(1),
        ..RunConfig::default()
    };
    let mut run = session.run("p", config).await?;
    let mut rows = 0;
    while let Some(batch) = run.next().await {
        rows += batch?.batch.num_rows();
    }
    Ok(rows)
}

/// The start time of the current case, and the peak memory of this process, for the watching
/// thread.
#[derive(Debug, Default)]
struct Watch {
    begun: std::sync::Mutex<Option<Instant>>,
    peak: AtomicU64,
}

impl Watch {
    fn begin(&self) {
        *self.begun.lock().unwrap() = Some(Instant::now());
        self.peak.store(0, Ordering::Relaxed);
    }

    fn peak(&self) -> u64 {
        self.peak
            .fetch_max(resident(), Ordering::Relaxed)
            .max(resident())
    }
}

/// Starts a thread that ends the process if a case takes too long or too much memory.
#[expect(
    clippy::disallowed_methods,
    reason = "the watch ends the process, so nothing waits for it"
)]
fn watch(watched: &Arc<Watch>) {
    let watched = Arc::clone(watched);
    std::thread::spawn(move || {
        loop {
            std::thread::park_timeout(Duration::from_millis(5));
            let begun = *watched.begun.lock().unwrap();
            if begun.is_some_and(|begun| begun.elapsed() > MAX_TIME) {
                exit(91);
            }
            let resident = resident();
            watched.peak.fetch_max(resident, Ordering::Relaxed);
            if resident > MAX_RESIDENT {
                exit(92);
            }
        }
    });
}

#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

#[cfg(not(target_os = "linux"))]
fn resident() -> u64 {
    0
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn limit_addresses() {
    let limit = libc::rlimit {
        rlim_cur: MAX_ADDRESSES,
        rlim_max: MAX_ADDRESSES,
    };
    // SAFETY: `setrlimit` only reads `limit`, which outlives the call.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(done, 0);
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn limit_addresses() {}
