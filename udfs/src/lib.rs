//! The functions of Forebay, each with what the optimiser may assume of it.

pub mod draw;
pub mod facts;
pub mod hash;
pub mod row;

// TEMP until the functions branch is merged.
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, expr::ScalarFunction};
#[doc(hidden)]
pub fn is_random(_: &str) -> bool {
    false
}
#[doc(hidden)]
pub fn bind_stream(call: ScalarFunction, _: u64) -> datafusion::common::Result<Expr> {
    Ok(Expr::ScalarFunction(call))
}
#[doc(hidden)]
pub fn facts_of(_: &str) -> Option<&'static facts::FunctionFacts> {
    None
}
#[doc(hidden)]
pub fn fuse(e: Expr) -> datafusion::common::Result<Transformed<Expr>> {
    Ok(Transformed::no(e))
}
#[doc(hidden)]
pub trait RowFunction {
    fn invoke_rows(
        &self,
        args: datafusion::logical_expr::ScalarFunctionArgs,
    ) -> datafusion::common::Result<(arrow::array::ArrayRef, Vec<RowFailure>)>;
}
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct RowFailure {
    pub row: usize,
    pub operator: String,
    pub cause: String,
}
impl std::fmt::Display for RowFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.operator, self.cause)
    }
}
impl std::error::Error for RowFailure {}
#[doc(hidden)]
pub fn row_function(_: &datafusion::logical_expr::ScalarUDF) -> Option<&dyn RowFunction> {
    None
}
#[doc(hidden)]
pub fn functions() -> Vec<std::sync::Arc<datafusion::logical_expr::ScalarUDF>> {
    vec![]
}
