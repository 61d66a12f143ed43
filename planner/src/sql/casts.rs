//! Checks of an analysed plan that DataFusion would defer to execution.

use arrow::compute::can_cast_types;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult, plan_err};
use datafusion::logical_expr::{Expr as LogicalExpr, ExprSchemable, LogicalPlan};

/// Refuses casts between incompatible types, which DataFusion would detect only at run time, reads
/// of a non-nullable field of a nullable struct, and calls in which DataFusion mixes rows.
pub(crate) fn check_casts(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    plan.apply_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let LogicalExpr::Cast(cast) = expr
                    // In a correlated subquery, a column of the outer query has no type in
                    // `schema`.
                    && let Ok(from) = cast.expr.get_type(&schema)
                    && !can_cast_types(&from, cast.field.data_type())
                {
                    return plan_err!("{from} cannot be cast to {}", cast.field.data_type());
                }
                check_rows_apart(expr)?;
                if let LogicalExpr::ScalarFunction(call) = expr
                    && call.name() == "get_field"
                    && let Ok(found @ (DataType::Union(..) | DataType::RunEndEncoded(..))) =
                        expr.get_type(&schema)
                {
                    return plan_err!(
                        "a field of type {found} that cannot be null cannot be read from a struct that can be null"
                    );
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(plan)
}

/// Refuses calls in which DataFusion mixes rows. `array_sort` sorts the lists of all rows by the
/// first row's order, and `map` aligns the keys and values of all rows at once, so a row with a
/// surplus key gets a value of the next row.
fn check_rows_apart(expr: &LogicalExpr) -> DataFusionResult<()> {
    let LogicalExpr::ScalarFunction(call) = expr else {
        return Ok(());
    };
    let is_constant = |arg: &LogicalExpr| arg.column_refs().is_empty();
    let length = |arg: &LogicalExpr| match arg {
        LogicalExpr::ScalarFunction(made) if made.name() == "make_array" => Some(made.args.len()),
        _ => None,
    };
    match (call.name(), call.args.as_slice()) {
        ("array_sort", [_, order @ ..]) if !order.iter().all(is_constant) => {
            plan_err!(
                "array_sort expects constants for its order: 'ASC' or 'DESC', and 'NULLS FIRST' or 'NULLS LAST'"
            )
        }
        ("map", [keys, values])
            if !(is_constant(keys) && is_constant(values))
                && (length(keys).is_none() || length(keys) != length(values)) =>
        {
            plan_err!(
                "map expects its keys and values as literals, with a value for each key: MAP {{'a': x, 'b': y}}"
            )
        }
        _ => Ok(()),
    }
}
