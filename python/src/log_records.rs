//! Passes the library's log records on to Python: warnings to the logger `forebay`, and what functions
//! print on the workers of a cluster to `sys.stderr`.
//!
//! Records come from threads that do not hold the GIL, and that Python must not wait for. So they
//! are kept, and passed on when Python next waits for something.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use forebay::forebay_cluster::job_codec::PRINTED;
use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

/// Bytes of text that are kept. Further records are dropped, and counted.
const KEPT_BYTES: usize = 4 << 20;

/// The records that were not passed on yet.
#[derive(Debug)]
struct Records {
    /// The level of each record, `None` for printed text, and its text.
    kept: Vec<(Option<Level>, String)>,
    bytes: usize,
    /// Number of records that were dropped.
    dropped: u64,
}

impl Records {
    const EMPTY: Self = Self {
        kept: Vec::new(),
        bytes: 0,
        dropped: 0,
    };

    fn add(&mut self, level: Option<Level>, text: String) {
        if self.bytes.saturating_add(text.len()) > KEPT_BYTES {
            self.dropped += 1;
            return;
        }
        self.bytes += text.len();
        self.kept.push((level, text));
    }
}

static RECORDS: Mutex<Records> = Mutex::new(Records::EMPTY);
static HAS_RECORDS: AtomicBool = AtomicBool::new(false);
/// The process that began to keep records.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Locks the records. In a forked child, a thread of the parent may hold the lock forever, so the
/// child does not wait for it, and this returns `None`.
fn records() -> Option<MutexGuard<'static, Records>> {
    if PROCESS.load(Ordering::Relaxed) == std::process::id() {
        return Some(RECORDS.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match RECORDS.try_lock() {
        Ok(records) => Some(records),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[derive(Debug)]
struct Keeper;

impl Log for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == PRINTED
            || metadata.level() <= Level::Warn && metadata.target().starts_with("forebay")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = (record.target() != PRINTED).then(|| record.level());
        if let Some(mut records) = records() {
            records.add(level, record.args().to_string());
            HAS_RECORDS.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {}
}

/// Begins to keep records.
pub(crate) fn keep() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // Another module of this process may have set a logger, which then gets the records.
    if log::set_logger(&Keeper).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Passes the kept records on.
pub(crate) fn pass_on(py: Python<'_>) -> PyResult<()> {
    if !HAS_RECORDS.swap(false, Ordering::AcqRel) {
        return Ok(());
    }
    let Some(Records { kept, dropped, .. }) =
        records().map(|mut records| std::mem::replace(&mut *records, Records::EMPTY))
    else {
        HAS_RECORDS.store(true, Ordering::Release);
        return Ok(());
    };
    let missing = (dropped > 0).then(|| {
        let text = format!("{dropped} lines that functions printed, or warnings, are missing here: there were too many");
        (Some(Level::Warn), text)
    });
    for (level, text) in kept.into_iter().chain(missing) {
        match level {
            None => {
                let stderr = py.import("sys")?.getattr("stderr")?;
                if !stderr.is_none() {
                    stderr.call_method1("write", (format!("{}\n", plain(&text)),))?;
                }
            }
            Some(level) => {
                let method = if level == Level::Error {
                    "error"
                } else {
                    "warning"
                };
                let logger = py
                    .import("logging")?
                    .call_method1("getLogger", ("forebay",))?;
                logger.call_method1(method, ("%s", plain(&text)))?;
            }
        }
    }
    Ok(())
}

/// Passes the kept records on while something else is more important: an exception goes to
/// `sys.unraisablehook`.
pub(crate) fn pass_on_beside(py: Python<'_>) {
    if let Err(error) = pass_on(py) {
        error.write_unraisable(py, None);
    }
}

/// Replaces the characters by which a text could control a terminal.
fn plain(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() && !matches!(c, '\t' | '\n') {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(shown).collect()
}
