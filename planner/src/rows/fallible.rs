//! Finds expressions whose evaluation can raise an error on a row.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

/// True if evaluating `expr` over columns of `schema` can raise an error on a row. For an operator
/// of DataFusion, this is false only if the operator has a result for all values of its operands'
/// types.
pub(crate) fn fallible(expr: &Expr, schema: &DFSchema) -> bool {
    let mut fallible = false;
    let visited = expr.apply(|e| {
        fallible |= match e {
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::Between(_)
            | Expr::InList(_)
            | Expr::TryCast(_) => false,
            Expr::Cast(cast) => {
                let from = cast.expr.get_type(schema);
                !from.is_ok_and(|from| widens(&from, cast.field.data_type()))
            }
            // On overflow, integers wrap and floats become infinite, but decimals and times raise
            // an error.
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Plus | Operator::Minus | Operator::Multiply,
                right,
            }) => [left, right].into_iter().any(|operand| {
                let number = operand.get_type(schema);
                !number.is_ok_and(|t| t.is_integer() || t.is_floating())
            }),
            Expr::BinaryExpr(binary) => !matches!(
                binary.op,
                Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
                    | Operator::And
                    | Operator::Or
                    | Operator::IsDistinctFrom
                    | Operator::IsNotDistinctFrom
            ),
            Expr::ScalarFunction(call) => {
                forebay_udfs::facts_of(call.func.name()).is_none_or(|facts| facts.fallible)
            }
            _ => true,
        };
        Ok(TreeNodeRecursion::Continue)
    });
    visited.is_err() || fallible
}

/// True if a cast of any value of type `from` to type `to` succeeds.
fn widens(from: &DataType, to: &DataType) -> bool {
    let bytes = |t: &DataType| t.primitive_width().unwrap_or(0);
    let (signed, unsigned) = (to.is_signed_integer(), to.is_unsigned_integer());
    from == to
        || from.is_integer() && to.is_floating() && *to != DataType::Float16
        || from.is_signed_integer() && signed && bytes(from) <= bytes(to)
        || from.is_unsigned_integer() && unsigned && bytes(from) <= bytes(to)
        || from.is_unsigned_integer() && signed && bytes(from) < bytes(to)
        || from.is_floating() && to.is_floating() && bytes(from) <= bytes(to)
}
