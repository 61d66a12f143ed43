//! Finds the [`RowFunction`] that a DataFusion function implements.

use datafusion::logical_expr::ScalarUDF;

use crate::declared::DeclaredUdf;
use crate::failure::RowFunction;
use crate::image::{ImageHeader, ImageProgram, ImageUdf};
use crate::one_hot::OneHot;

/// Returns the implementation of `udf` as a [`RowFunction`]; `None` if `udf` is not a row function.
pub fn row_function(udf: &ScalarUDF) -> Option<&dyn RowFunction> {
    let function = udf.inner();
    if let Some(function) = function.downcast_ref::<ImageUdf>() {
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
