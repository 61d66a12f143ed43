//! Failed rows as values: a failing row never fails its batch.

use arrow::array::ArrayRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::ScalarFunctionArgs;

/// Maximum size, in bytes, of the cause of a failure; the middle of a longer cause is left out. The
/// limit bounds memory, since every failed row has a cause.
pub const CAUSE_BYTES: usize = 4096;

/// Shortens `cause` to at most [`CAUSE_BYTES`] bytes by leaving out the middle.
pub fn bounded(cause: String) -> String {
    /// Bytes reserved for the end of the cause (`END`), and for the note between beginning and end
    /// that counts the omitted bytes (`BETWEEN`).
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

/// The failure of a function for one row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operator}: {cause} (row {row} of the batch)")]
pub struct RowFailure {
    /// Index of the row in the batch.
    pub row: usize,
    /// Name of the function that failed.
    pub operator: String,
    /// Message of the error.
    pub cause: String,
}

/// A function that reports failed rows instead of failing the batch.
pub trait RowFunction {
    /// Evaluates the function. Returns the values, which are null for failed rows and null inputs,
    /// and the failures in row order. An `Err` means a wrong call or a broken invariant, never a
    /// bad row.
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)>;
}

/// An error of a [`RowFunction`] that belongs to no row. The error ends the run, even if the
/// function is called inside a larger expression.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RunFailure(pub DataFusionError);

/// Returns the values in `invoked`, the result of a [`RowFunction`], if no row failed, else the
/// first failure as an error.
///
/// # Errors
/// Returns a [`RowFailure`] if a row failed, and a [`RunFailure`] if the call itself failed, so
/// that code that evaluates a larger expression can distinguish the two.
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
