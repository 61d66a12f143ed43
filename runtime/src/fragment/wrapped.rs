//! Wrappers that change the values of a subexpression before a function reads them. Nested values
//! are cleared of data hidden under nulls ([`hidden`](super::hidden)), the items of an IN list that
//! read columns are expanded to arrays, and nulls are filled ([`fill_null`](super::fill_null)).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Expr, ExprSchemable};
use datafusion::physical_expr::expressions::{
    CaseExpr, Column, InListExpr, IsNotNullExpr, Literal, in_list,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use forebay_udfs::row_function;

use super::fill_null::filled;
use super::hidden::cleared;

/// Wraps every subexpression of a nested or dictionary type, so that hidden values are removed from
/// the subexpression's result before a function reads it.
pub(super) fn clearing(
    expr: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|expr| {
        let data_type = expr.data_type(schema)?;
        let is_flat = !data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..));
        // A function that reports failed rows itself builds all values of its result, so the result
        // has no hidden values.
        if is_flat || row_call(&expr).is_some() {
            return Ok(Transformed::no(expr));
        }
        Ok(Transformed::yes(match expr.downcast_ref::<Literal>() {
            Some(literal) => Arc::new(Literal::new_with_metadata(
                cleared_scalar(literal.value().clone())?,
                Some(literal.return_field(schema)?.metadata().clone().into()),
            )),
            None => Wrapped::around(&expr, Change::Clear),
        }))
    })
    .data()
}

/// Replaces each constant subexpression of a nested type by its value, computed with `simplify` and
/// cleared of hidden values. Inner subexpressions are replaced first, so outer ones are computed
/// from cleared values.
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
            // A constant whose evaluation fails stays in the expression, and fails only the rows
            // that need it.
            _ => Transformed::no(expr),
        })
    })?;
    Ok(folded.data)
}

/// Rewrites the IN lists whose items read columns, so that the items are evaluated for every row.
///
/// DataFusion treats an IN list as constant if its items evaluate to scalars over a batch of zero
/// rows. A CASE evaluates to a null scalar over such a batch, even if the CASE reads columns.
pub(super) fn with_lists_of_rows(
    expr: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|expr| {
        let Some(found) = expr.downcast_ref::<InListExpr>() else {
            return Ok(Transformed::no(expr));
        };
        let reads = |item: &Arc<dyn PhysicalExpr>| item.exists(|e| Ok(e.is::<Column>()));
        let mut list = Vec::with_capacity(found.list().len());
        let mut is_of_rows = false;
        for item in found.list() {
            let reads = reads(item)?;
            is_of_rows |= reads;
            list.push(if reads {
                Wrapped::around(item, Change::Expand)
            } else {
                Arc::clone(item)
            });
        }
        if !is_of_rows {
            return Ok(Transformed::no(expr));
        }
        let (value, negated) = (Arc::clone(found.expr()), found.negated());
        Ok(Transformed::yes(in_list(value, list, &negated, schema)?))
    })
    .data()
}

/// Replaces each `CASE WHEN x IS NOT NULL THEN x ELSE constant END`, the simplified form of
/// `coalesce`, where `x` has a primitive type. The CASE would evaluate `x` twice, and filter and
/// merge rows.
pub(super) fn with_filled_nulls(
    expr: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|expr| {
        Ok(match filling(&expr, schema)? {
            Some(filling) => Transformed::yes(filling),
            None => Transformed::no(expr),
        })
    })
    .data()
}

/// Converts `expr` if it is a CASE that [`with_filled_nulls`] replaces.
fn filling(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let Some(case) = expr.downcast_ref::<CaseExpr>() else {
        return Ok(None);
    };
    let ([(when, then)], None, Some(otherwise)) =
        (case.when_then_expr(), case.expr(), case.else_expr())
    else {
        return Ok(None);
    };
    let (Some(when), Some(constant)) = (
        when.downcast_ref::<IsNotNullExpr>(),
        otherwise.downcast_ref::<Literal>(),
    ) else {
        return Ok(None);
    };
    let (value, data_type) = (constant.value(), then.data_type(schema)?);
    let fits = data_type.is_primitive()
        && value.data_type() == data_type
        && !value.is_null()
        && when.arg().eq(then)
        // The rows that such a function reports as failed are noted by the expressions that call it.
        && !then.exists(|of| Ok(row_call(of).is_some()))?;
    Ok(fits.then(|| Wrapped::around(then, Change::Fill(value.clone()))))
}

/// Returns the expression inside `expr` if `expr` is a wrapper that clears values; otherwise
/// `expr`.
pub(super) fn uncleared(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    match expr.downcast_ref::<Wrapped>() {
        Some(wrapped) if wrapped.change == Change::Clear => &wrapped.of,
        _ => expr,
    }
}

/// Returns `expr` if `expr` calls a function that reports its failed rows itself; otherwise `None`.
pub(super) fn row_call(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarFunctionExpr> {
    expr.downcast_ref::<ScalarFunctionExpr>()
        .filter(|call| row_function(call.fun()).is_some())
}

fn cleared_scalar(value: ScalarValue) -> Result<ScalarValue> {
    if value.data_type().is_nested() {
        ScalarValue::try_from_array(&cleared(&value.to_array()?)?, 0)
    } else {
        Ok(value)
    }
}

/// Change that [`Wrapped`] makes to the values of an expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Change {
    /// The values are cleared of data hidden under nulls.
    Clear,
    /// A scalar is expanded to an array with one element per row.
    Expand,
    /// Nulls are replaced by this value, which has the primitive type of the expression.
    Fill(ScalarValue),
}

/// Expression that evaluates the expression `of` and changes the values as `change` says.
#[derive(Debug)]
struct Wrapped {
    of: Arc<dyn PhysicalExpr>,
    change: Change,
}

impl Wrapped {
    fn around(of: &Arc<dyn PhysicalExpr>, change: Change) -> Arc<dyn PhysicalExpr> {
        let of = Arc::clone(of);
        Arc::new(Self { of, change })
    }
}

impl PartialEq for Wrapped {
    fn eq(&self, other: &Self) -> bool {
        self.of.eq(&other.of) && self.change == other.change
    }
}

impl Eq for Wrapped {}

impl Hash for Wrapped {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.hash(state);
        self.change.hash(state);
    }
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.change {
            Change::Fill(value) => write!(f, "coalesce({}, {value})", self.of),
            Change::Clear | Change::Expand => fmt::Display::fmt(&self.of, f),
        }
    }
}

impl PhysicalExpr for Wrapped {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        Ok(match (&self.change, self.of.evaluate(batch)?) {
            (Change::Clear, ColumnarValue::Array(array)) => ColumnarValue::Array(cleared(&array)?),
            (Change::Clear, ColumnarValue::Scalar(value)) => {
                ColumnarValue::Scalar(cleared_scalar(value)?)
            }
            (Change::Expand, value) => ColumnarValue::Array(value.into_array(batch.num_rows())?),
            (Change::Fill(fill), ColumnarValue::Array(array)) => {
                ColumnarValue::Array(filled(&array, fill)?)
            }
            (Change::Fill(fill), ColumnarValue::Scalar(value)) => {
                ColumnarValue::Scalar(if value.is_null() { fill.clone() } else { value })
            }
        })
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        match &self.change {
            Change::Fill(value) => {
                let field = Field::new(self.to_string(), value.data_type(), false);
                Ok(Arc::new(field))
            }
            Change::Clear | Change::Expand => self.of.return_field(schema),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.of]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let of = children.pop();
        let of = of.as_ref().unwrap_or(&self.of);
        Ok(Self::around(of, self.change.clone()))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change {
            Change::Fill(_) => fmt::Display::fmt(self, f),
            Change::Clear | Change::Expand => self.of.fmt_sql(f),
        }
    }
}
