//! Numbers and seeds of the fuzzers' random cases.

use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Environment variable with the number of random cases of each fuzzer.
const CASES_VARIABLE: &str = "FOREBAY_FUZZ_CASES";
/// Environment variable with the only seed to run.
const SEED_VARIABLE: &str = "FOREBAY_FUZZ_SEED";

/// Returns the seeds of a fuzzer that runs `cases` cases by default.
pub(crate) fn seeds(cases: u64) -> Range<u64> {
    let set = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match set(SEED_VARIABLE) {
        Some(seed) => seed..seed + 1,
        None => 0..set(CASES_VARIABLE).unwrap_or(cases),
    }
}

/// Returns the instruction by which a failed case can be run again.
pub(crate) fn again(seed: u64) -> String {
    format!("run it again with {SEED_VARIABLE}={seed}")
}

/// Timeout of a case, longer than any case takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a case on its own thread, because planning cannot be interrupted.
///
/// # Panics
/// Panics if the case panics or does not end.
#[expect(clippy::disallowed_methods, reason = "a case that does not end outlives its test")]
pub(crate) fn within<T, F>(case: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        // The receiver is gone after a timeout.
        let _ = sender.send(runtime.block_on(case()));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => panic!("the case does not end"),
        Err(RecvTimeoutError::Disconnected) => panic!("the case panicked"),
    }
}
