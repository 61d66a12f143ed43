//! Rows that failed, as values: a failing row never fails its batch.

use arrow::array::ArrayRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};

use crate::declared::DeclaredUdf;
use crate::image::{ImageFunction, ImageHeader, ImageProgram};
use crate::one_hot::OneHot;

/// Bytes of a failure's cause at most: all of a run's failures may have one.
pub const CAUSE_BYTES: usize = 4096;

/// A cause within [`CAUSE_BYTES`]: its beginning and its end, where it is longer.
pub fn bounded(cause: String) -> String {
    /// Of the bytes: for the end, and for what stands between.
    const END: usize = 1024;
    const BETWEEN: usize = 64;
    if cause.len() <= CAUSE_BYTES {
        return cause;
    }
    let head = &cause[..cause.floor_char_boundary(CAUSE_BYTES - END - BETWEEN)];
    let tail = &cause[cause.ceil_char_boundary(cause.len() - END)..];
    let left_out = cause.len() - head.len() - tail.len();
    format!("{head} [.. {left_out} bytes left out ..] {tail}")
}

/// Why a function has no value for one row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operator}: {cause} (row {row} of the batch)")]
pub struct RowFailure {
    /// Index of the row in the batch.
    pub row: usize,
    /// The function that failed.
    pub operator: String,
    /// What was wrong with the row.
    pub cause: String,
}

/// A function that tells which rows failed instead of failing the batch.
pub trait RowFunction {
    /// The values, null where a row failed (or its input is null), and the failures in row order.
    /// Errors are mistakes of the call, or broken invariants, never of a row.
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)>;
}

/// The row function behind a DataFusion function, where it is one.
pub fn row_function(udf: &ScalarUDF) -> Option<&dyn RowFunction> {
    let function = udf.inner();
    if let Some(function) = function.downcast_ref::<ImageFunction>() {
        return Some(function);
    }
    if let Some(function) = function.downcast_ref::<ImageProgram>() {
        return Some(function);
    }
    if let Some(function) = function.downcast_ref::<ImageHeader>() {
        return Some(function);
    }
    if let Some(function) = function.downcast_ref::<DeclaredUdf>() {
        return Some(function);
    }
    function
        .downcast_ref::<OneHot>()
        .map(|function| function as &dyn RowFunction)
}

/// An error of a [`RowFunction`] that is no row's: it ends the run wherever in an expression the function stands.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RunFailure(pub DataFusionError);

/// The values of a [`RowFunction`] where no row failed; else the first failure as an error.
///
/// # Errors
/// A [`RowFailure`] or a [`RunFailure`], so that whoever called an expression around it tells them apart.
pub(crate) fn all_or_first(invoked: Result<(ArrayRef, Vec<RowFailure>)>) -> Result<ArrayRef> {
    let (values, failures) =
        invoked.map_err(|error| DataFusionError::External(Box::new(RunFailure(error))))?;
    match failures.into_iter().next() {
        None => Ok(values),
        Some(first) => Err(DataFusionError::External(Box::new(first))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_bounded_at_characters() {
        let short = "x".repeat(CAUSE_BYTES);
        assert_eq!(bounded(short.clone()), short);
        for begin in ["", "a", "ab", "abc"] {
            let long = format!("{begin}{}end", "\u{1d11e}".repeat(300_000));
            let cut = bounded(long.clone());
            assert!(cut.len() <= CAUSE_BYTES && cut.len() > CAUSE_BYTES - 80);
            assert!(cut.starts_with(begin) && cut.ends_with("\u{1d11e}end"));
            let (head, rest) = cut.split_once(" [.. ").unwrap();
            let (left_out, tail) = rest.split_once(" bytes left out ..] ").unwrap();
            let left_out: usize = left_out.parse().unwrap();
            assert_eq!(head.len() + left_out + tail.len(), long.len());
        }
    }
}
