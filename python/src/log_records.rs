//! Passes the library's log records on to Python: warnings to the logger `forebay`, and what functions
//! print on the workers of a cluster to `sys.stderr`.
//!
//! Records come from threads that do not hold the GIL, and that Python must not wait for. So they
//! are kept, and passed on when Python next waits for something.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay::forebay_cluster::client::PRINTED;
use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

/// Number of records that are kept. Further ones are dropped.
const KEPT: usize = 1024;

/// A record: its level, `None` for printed text, and its text.
type Kept = (Option<Level>, String);

static RECORDS: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());
static HAS_RECORDS: AtomicBool = AtomicBool::new(false);

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
        // A process that is forked while another thread holds the lock must not wait for it. Its
        // records are lost.
        if let Ok(mut records) = RECORDS.try_lock()
            && records.len() < KEPT
        {
            records.push_back((level, record.args().to_string()));
            HAS_RECORDS.store(true, Ordering::Release);
        }
    }

    fn flush(&self) {}
}

/// Begins to keep records.
pub(crate) fn keep() {
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
    let records = match RECORDS.try_lock() {
        Ok(mut records) => std::mem::take(&mut *records),
        Err(_) => {
            HAS_RECORDS.store(true, Ordering::Release);
            return Ok(());
        }
    };
    for (level, text) in records {
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
