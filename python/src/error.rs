//! Converts errors of the library to exceptions of `forebay.errors`.

use datafusion::common::DataFusionError;
use forebay::forebay_cluster::error::ClusterError;
use forebay::{Error, Failure};
use forebay_planner::error::{PlanError, Position};
use forebay_runtime::source::SourceError;
use forebay_udfs::FunctionFault;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Converts an error to an exception. If `sql` is not `None`, positions in the error refer to this
/// text.
pub(crate) fn exception(py: Python<'_>, error: &Error, sql: Option<&str>) -> PyErr {
    raised(py, error, sql).unwrap_or_else(|broken| broken)
}

fn raised(py: Python<'_>, error: &Error, sql: Option<&str>) -> PyResult<PyErr> {
    let attributes = PyDict::new(py);
    let (class, message) = match error {
        Error::Plan(error) => plan(error, sql, &attributes)?,
        Error::Run(error) => run(error, &attributes)?,
        other => ("Error", other.to_string()),
    };
    let (message, frames) = apart(&message);
    let raised = make(py, class, message.to_owned(), &attributes)?;
    if let Some(frames) = frames {
        let cause = py.import("forebay.errors")?.getattr("UserTraceback")?;
        raised.set_cause(py, Some(PyErr::from_value(cause.call1((frames,))?)));
    }
    Ok(raised)
}

/// The line between the message of a failure's cause and the stack frames of the Python function.
const FRAMES: &str = "\nTraceback (most recent call last):\n";

/// Splits the text of a failure's cause into the message and the stack frames of the Python
/// function that raised the exception; `None` if there are no frames.
fn apart(cause: &str) -> (&str, Option<&str>) {
    match cause.find(FRAMES) {
        Some(at) => (&cause[..at], Some(&cause[at + 1..])),
        None => (cause, None),
    }
}

fn plan(
    error: &PlanError,
    sql: Option<&str>,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<(&'static str, String)> {
    let message = match sql {
        Some(sql) => error.render(sql),
        None => error.to_string(),
    };
    let class = match error {
        PlanError::Source { name, .. } => {
            attributes.set_item("source", name)?;
            "SourceError"
        }
        PlanError::Internal { .. } => "InternalError",
        PlanError::Mistake(mistake) => {
            attributes.set_item("hint", mistake.hint.as_deref())?;
            "PlanError"
        }
        _ => "PlanError",
    };
    if let Some(Position { line, column }) = error.position() {
        attributes.set_item("line", line)?;
        attributes.set_item("column", column)?;
    }
    Ok((class, message))
}

fn run(
    error: &forebay_runtime::error::Error,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<(&'static str, String)> {
    use forebay_runtime::error::Error;
    let class = match error {
        Error::Row(failure) => {
            failure_attributes(failure, attributes)?;
            "DataError"
        }
        Error::Function { function, .. } => {
            attributes.set_item("function", function)?;
            "FunctionError"
        }
        Error::Memory { limit, minimum } => {
            attributes.set_item("limit", limit)?;
            attributes.set_item("minimum", minimum)?;
            "MemoryLimitError"
        }
        Error::Room(room) => {
            attributes.set_item("limit", room.limit)?;
            attributes.set_item("minimum", room.minimum)?;
            "MemoryLimitError"
        }
        Error::Engine(error) if let Some(fault) = root::<FunctionFault>(error) => {
            attributes.set_item("function", &fault.function)?;
            "FunctionError"
        }
        Error::Engine(error) if let Some(SourceError::Changed { path, change }) = root(error) => {
            attributes.set_item("source", path.to_string_lossy())?;
            // The last clause of the message is true because `forebay/iterator.py` discards the
            // plan.
            let told = format!(
                "{path:?} changed since the pipeline was planned: {change}; the next run plans again"
            );
            return Ok(("SourceError", told));
        }
        Error::Engine(error) if root::<ClusterError>(error).is_some() => "ClusterError",
        Error::Config(_) => "ConfigError",
        Error::Resume(_) => "ResumeError",
        error if error.is_user() => "DataError",
        _ => "InternalError",
    };
    Ok((class, error.to_string()))
}

/// Returns the root cause of an engine error if the root cause has the type `T`, such as
/// [`FunctionFault`] or [`SourceError`]; else `None`.
fn root<T: std::error::Error + 'static>(error: &DataFusionError) -> Option<&T> {
    match error.find_root() {
        DataFusionError::External(source) => source.downcast_ref(),
        _ => None,
    }
}

/// Adds the attributes of a `DataError` for a failed row to `attributes`.
pub(crate) fn failure_attributes(
    failure: &Failure,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<()> {
    attributes.set_item("location", &failure.location)?;
    attributes.set_item("file", &failure.file)?;
    attributes.set_item("row", failure.row)?;
    attributes.set_item("column", failure.column.as_deref())?;
    attributes.set_item("operator", &failure.operator)?;
    attributes.set_item("cause", apart(&failure.cause).0)
}

/// Creates an exception of the class `forebay.errors.<class>`.
fn make(
    py: Python<'_>,
    class: &str,
    message: String,
    attributes: &Bound<'_, PyDict>,
) -> PyResult<PyErr> {
    let class = py.import("forebay.errors")?.getattr(class)?;
    let raised = class.call((message,), Some(attributes))?;
    Ok(PyErr::from_value(raised))
}

/// Creates a `ConfigError` for an invalid setting.
pub(crate) fn config(py: Python<'_>, message: impl Into<String>) -> PyErr {
    make(py, "ConfigError", message.into(), &PyDict::new(py)).unwrap_or_else(|broken| broken)
}

/// Silences the printed reports of panics in image decoders. If a decoder panics on a damaged file,
/// the row of this file fails, and the panic is reported as the row's error.
pub(crate) fn silence_caught_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !forebay_udfs::image::panics_are_caught() {
            report(panic);
        }
    }));
}
