//! IN lists whose items differ from row to row.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, InListExpr, in_list};

/// Rewrites IN lists that read columns, so that they are evaluated row by row.
///
/// DataFusion takes an IN list for constant if its items evaluate to scalars over zero rows. A CASE
/// evaluates to a scalar there whatever columns it reads, and the value of that scalar is null.
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
                Arc::new(OfRows(Arc::clone(item)))
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

/// An expression that always evaluates to an array.
#[derive(Debug)]
struct OfRows(Arc<dyn PhysicalExpr>);

impl PartialEq for OfRows {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Eq for OfRows {}

impl Hash for OfRows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for OfRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl PhysicalExpr for OfRows {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let value = self.0.evaluate(batch)?;
        value.into_array(batch.num_rows()).map(ColumnarValue::Array)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self(
            children.pop().unwrap_or_else(|| Arc::clone(&self.0)),
        )))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}
