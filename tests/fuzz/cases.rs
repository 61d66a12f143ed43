//! Helpers of the fuzzers: the seeds of the random cases, and a time limit for each case.

use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Environment variable that sets the number of random cases of each fuzzer.
const CASES_VARIABLE: &str = "FOREBAY_FUZZ_CASES";
/// Environment variable that selects a single case by its seed.
const SEED_VARIABLE: &str = "FOREBAY_FUZZ_SEED";

/// Returns the seeds of a fuzzer that runs `cases` cases by default.
pub(crate) fn seeds(cases: u64) -> Range<u64> {
    let set = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match set(SEED_VARIABLE) {
        Some(seed) => seed..seed + 1,
        None => 0..set(CASES_VARIABLE).unwrap_or(cases),
    }
}

/// Returns a message that says how to run the case of `seed` again.
pub(crate) fn again(seed: u64) -> String {
    format!("run it again with {SEED_VARIABLE}={seed}")
}

/// Timeout of a case, far longer than a case takes even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a case on a new thread, because planning cannot be interrupted if the case does not end.
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
        // Sending fails if the receiver was dropped after a timeout.
        let _ = sender.send(runtime.block_on(case()));
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => panic!("the case does not end"),
        Err(RecvTimeoutError::Disconnected) => panic!("the case panicked"),
    }
}
