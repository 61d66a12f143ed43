//! Plans arrays of number literals as constants.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};

/// Plans `[0.485, 0.456]` as one list literal, instead of DataFusion's call of `make_array`.
/// Functions that take such a constant (a mean, a scale) can then read its value during type
/// checking.
#[derive(Debug, Default)]
pub(crate) struct NumericArrays;

impl ExprPlanner for NumericArrays {
    fn plan_array_literal(
        &self,
        exprs: Vec<Expr>,
        _schema: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(match numeric_list(&exprs) {
            Some(list) => PlannerResult::Planned(Expr::Literal(list, None)),
            None => PlannerResult::Original(exprs),
        })
    }
}

/// Builds a list literal from number literals: a list of Int64 if all are integers, else of
/// Float64. `None` if an expression is not a number literal.
pub(crate) fn numeric_list(exprs: &[Expr]) -> Option<ScalarValue> {
    let mut integers = Vec::with_capacity(exprs.len());
    let mut floats = Vec::with_capacity(exprs.len());
    for expr in exprs {
        match expr {
            Expr::Literal(ScalarValue::Int64(Some(value)), _) => {
                integers.push(ScalarValue::Int64(Some(*value)));
                #[expect(clippy::cast_precision_loss, reason = "SQL's own coercion")]
                floats.push(ScalarValue::Float64(Some(*value as f64)));
            }
            Expr::Literal(ScalarValue::Float64(Some(value)), _) => {
                floats.push(ScalarValue::Float64(Some(*value)));
            }
            _ => return None,
        }
    }
    if exprs.is_empty() {
        return None;
    }
    let (values, kind) = if integers.len() == exprs.len() {
        (integers, DataType::Int64)
    } else {
        (floats, DataType::Float64)
    };
    Some(ScalarValue::List(ScalarValue::new_list_nullable(
        &values, &kind,
    )))
}

/// Returns [`NumericArrays`] as an expression planner, to be registered with DataFusion.
pub(crate) fn numeric_arrays() -> Arc<dyn ExprPlanner> {
    Arc::new(NumericArrays)
}
