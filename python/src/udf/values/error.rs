//! Values that cannot be converted.

use forebay_udfs::bounded;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// Message for a value that does not have the declared type. The message names the expected and the
/// found type.
pub(crate) type Wrong = String;

/// Indices of the rows with wrong values, ascending, each with the message for its value.
pub(crate) type WrongRows = Vec<(usize, Wrong)>;

/// The reason why a value could not be converted.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The value does not have the declared type. Only the row of this value fails.
    Wrong(Wrong),
    /// An exception that ends the whole call.
    Broken(PyErr),
}

impl From<PyErr> for ReadError {
    /// Reading a value may run code of the value's Python class. If this code raises an
    /// `Exception`, only this value is wrong. Any other exception, such as `KeyboardInterrupt`,
    /// ends the call.
    fn from(error: PyErr) -> Self {
        if Python::attach(|py| error.is_instance_of::<PyException>(py)) {
            Self::Wrong(bounded(format!("reading the value raised {error}")))
        } else {
            Self::Broken(error)
        }
    }
}

/// Creates the error that `value` does not have the type `name`.
pub(super) fn found(name: &str, value: &Bound<'_, PyAny>) -> ReadError {
    let class = value.get_type().name().map(|name| name.to_string());
    let class = class.unwrap_or_else(|_| "value".to_owned());
    ReadError::Wrong(format!("expected {name}, found a {class}"))
}
