//! SQL text as an expression of a pipeline builder.

use arrow::datatypes::SchemaRef;
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, lit};

use super::expr::{Unresolved, call};
use crate::error::{PlanError, Result};
use crate::functions::FunctionNames;
use crate::sql::{explain_unplaced, select_list};

/// Name of the marker function whose argument is an SQL text that [`TextReader`] has not parsed
/// yet.
const TEXT_MARKER: &str = "__sql";

/// The column named `text` or, if there is no such column, the SQL expression `text`: `"label"`,
/// `"price * 2 AS double"`. In [`select`](super::PipelineBuilder::select) `text` may be several
/// items of a select list, including `*`.
pub fn sql(text: &str) -> Expr {
    call(TEXT_MARKER, [lit(text)])
}

/// The columns and functions that an SQL text may name.
pub(super) struct TextReader<'a> {
    pub(super) columns: SchemaRef,
    pub(super) state: &'a SessionState,
    pub(super) functions: &'a FunctionNames,
}

impl TextReader<'_> {
    /// Converts an item of a select list to expressions. An SQL text may hold several items.
    pub(super) fn items(&self, expr: Expr) -> Result<Vec<Expr>> {
        match text_of(&expr) {
            Some(text) => self.list(text),
            None => Ok(vec![self.nested(expr)?]),
        }
    }

    /// Converts an item that must be exactly one expression.
    pub(super) fn one(&self, expr: Expr) -> Result<Expr> {
        match text_of(&expr) {
            Some(text) => self.single(text),
            None => self.nested(expr),
        }
    }

    fn nested(&self, expr: Expr) -> Result<Expr> {
        let mut mistake = None;
        let read = expr.transform_up(|expr| match text_of(&expr) {
            Some(text) => Ok(match self.single(text) {
                Ok(read) => Transformed::yes(read.unalias()),
                Err(error) => {
                    mistake.get_or_insert(error);
                    Transformed::new(expr, false, TreeNodeRecursion::Stop)
                }
            }),
            None => Ok(Transformed::no(expr)),
        });
        match mistake {
            Some(mistake) => Err(mistake),
            None => read
                .map(|read| read.data)
                .map_err(|error| explain_unplaced(&error).with_source(error)),
        }
    }

    fn single(&self, text: &str) -> Result<Expr> {
        let mut list = self.list(text)?;
        match (list.pop(), list.is_empty()) {
            (Some(only), true) => Ok(only),
            (_, _) => Err(PlanError::mistake(format!(
                "expected one expression, found several: \"{text}\""
            ))),
        }
    }

    fn list(&self, text: &str) -> Result<Vec<Expr>> {
        if self.columns.column_with_name(text).is_some() {
            return Ok(vec![Expr::Column(Column::new_unqualified(text))]);
        }
        let columns = SchemaRef::clone(&self.columns);
        select_list(text, columns, self.state, self.functions)
    }
}

/// Returns the SQL text of a call of [`TEXT_MARKER`]; `None` for any other expression.
fn text_of(expr: &Expr) -> Option<&str> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else {
        return None;
    };
    func.inner().downcast_ref::<Unresolved>()?;
    match args.as_slice() {
        [Expr::Literal(text, _)] if func.name() == TEXT_MARKER => text.try_as_str().flatten(),
        _ => None,
    }
}
