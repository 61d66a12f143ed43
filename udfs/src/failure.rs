//! Rows that failed, as values: a failing row never fails its batch.

use arrow::array::ArrayRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};

use crate::declared::DeclaredUdf;
use crate::image::{ImageFunction, ImageHeader, ImageProgram};
use crate::one_hot::OneHot;

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

/// The values where no row failed; else the first failure as an error.
pub(crate) fn all_or_first((values, failures): (ArrayRef, Vec<RowFailure>)) -> Result<ArrayRef> {
    match failures.into_iter().next() {
        None => Ok(values),
        Some(first) => Err(DataFusionError::External(Box::new(first))),
    }
}
