//! Failures of a store below a parser.
//!
//! A parser gets an I/O error, and most of them make a text of it that says that the file is
//! damaged. So the failure is kept beside: the reads of a file and the parser that asks for them
//! run on one thread.

use std::cell::RefCell;
use std::io;

use datafusion::common::Result;

use crate::objects::StoreError;

thread_local! {
    /// The failure of the last read of an object on this thread.
    static FAILURE: RefCell<Option<StoreError>> = const { RefCell::new(None) };
}

/// Keeps a failure, and returns the I/O error for the parser.
pub(super) fn failed(error: StoreError) -> io::Error {
    let text = error.to_string();
    FAILURE.set(Some(error));
    io::Error::other(text)
}

/// Runs `work`, which reads files on this thread. If it fails after a read of an object failed,
/// returns the failure of the store.
pub(crate) fn with_store_failures<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    FAILURE.take();
    let done = work();
    match FAILURE.take() {
        Some(failure) if done.is_err() => Err(super::super::SourceError::Store(failure).into()),
        _ => done,
    }
}
