//! Finds the row function behind a DataFusion function.

use datafusion::logical_expr::ScalarUDF;

use crate::declared::DeclaredUdf;
use crate::failure::RowFunction;
use crate::image::{ImageHeader, ImageProgram, ImageUdf};
use crate::one_hot::OneHot;

/// Returns the row function behind a DataFusion function; `None` if there is none.
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
