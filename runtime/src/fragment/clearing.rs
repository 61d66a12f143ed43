//! Expressions whose nested values are cleared of data hidden under nulls ([`hidden`](super::hidden)).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Expr, ExprSchemable};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use forebay_udfs::row_function;

use super::hidden::cleared;

/// Wraps every subexpression of a nested type so that its value is cleared before a function reads it.
pub(super) fn clearing(
    expr: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|expr| {
        let data_type = expr.data_type(schema)?;
        let is_flat = !data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..));
        // Functions that report failed rows themselves build all of their values, so nothing is hidden in them.
        if is_flat || reports_rows(&expr) {
            return Ok(Transformed::no(expr));
        }
        Ok(Transformed::yes(match expr.downcast_ref::<Literal>() {
            Some(literal) => Arc::new(Literal::new_with_metadata(
                cleared_scalar(literal.value().clone())?,
                Some(literal.return_field(schema)?.metadata().clone().into()),
            )),
            None => Arc::new(Cleared { of: expr }),
        }))
    })
    .data()
}

/// Evaluates constants of nested types with `simplify`, innermost first, and clears them. A constant built from
/// others is then evaluated from the cleared ones.
pub(super) fn with_cleared_constants(
    expr: Expr,
    schema: &DFSchema,
    simplify: impl Fn(Expr) -> Result<Expr>,
) -> Result<Expr> {
    let folded = expr.transform_up(|expr| {
        let computes = !matches!(expr, Expr::Literal(..) | Expr::Column(_) | Expr::Alias(_));
        let is_nested = |expr: &Expr| expr.get_type(schema).is_ok_and(|found| found.is_nested());
        let varies = |expr: &Expr| Ok(matches!(expr, Expr::Column(_)));
        if !computes || !is_nested(&expr) || expr.is_volatile() || expr.exists(varies)? {
            return Ok(Transformed::no(expr));
        }
        Ok(match simplify(expr.clone()) {
            Ok(Expr::Literal(value, metadata)) => {
                Transformed::yes(Expr::Literal(cleared_scalar(value)?, metadata))
            }
            // A constant without a value is an error of the rows that need it.
            _ => Transformed::no(expr),
        })
    })?;
    Ok(folded.data)
}

/// Returns the expression inside a [`Cleared`] wrapper.
pub(super) fn uncleared(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    expr.downcast_ref::<Cleared>()
        .map_or(expr, |cleared| &cleared.of)
}

fn reports_rows(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let call = expr.downcast_ref::<ScalarFunctionExpr>();
    call.is_some_and(|call| row_function(call.fun()).is_some())
}

fn cleared_scalar(value: ScalarValue) -> Result<ScalarValue> {
    if value.data_type().is_nested() {
        ScalarValue::try_from_array(&cleared(&value.to_array()?)?, 0)
    } else {
        Ok(value)
    }
}

/// The value of an expression, cleared of data hidden under nulls.
#[derive(Debug)]
struct Cleared {
    of: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Cleared {
    fn eq(&self, other: &Self) -> bool {
        self.of.eq(&other.of)
    }
}

impl Eq for Cleared {}

impl Hash for Cleared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.hash(state);
    }
}

impl fmt::Display for Cleared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.of, f)
    }
}

impl PhysicalExpr for Cleared {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        Ok(match self.of.evaluate(batch)? {
            ColumnarValue::Array(array) => ColumnarValue::Array(cleared(&array)?),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(cleared_scalar(value)?),
        })
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.of.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.of]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let of = children.pop().unwrap_or_else(|| Arc::clone(&self.of));
        Ok(Arc::new(Self { of }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt_sql(f)
    }
}
