//! Checks of nodes before datafusion-proto reads them.
//!
//! datafusion-proto trusts its input: it reads subqueries with whole plans and tables, recurses
//! over chains of any length, and panics on some damaged values.

use datafusion_proto::generated::datafusion_common::ArrowType;
use datafusion_proto::generated::datafusion_common::arrow_type::ArrowTypeEnum;
use datafusion_proto::protobuf::LogicalExprNode;
use datafusion_proto::protobuf::logical_expr_node::ExprType;

use super::error::WireError;
use super::literal::check_value;
use super::registry::{check_received, check_received_higher};

/// Checks that a node is one that [`shallow`](super::node::shallow) makes: without deep children,
/// and without types, values and functions that are dangerous to read.
pub(super) fn check_node(node: &LogicalExprNode) -> Result<(), WireError> {
    use ExprType as Type;
    let Some(node) = &node.expr_type else {
        return Err(unexpected());
    };
    match node {
        Type::Column(column) => expect(column.relation.is_none()),
        Type::Literal(value) => check_value(value),
        Type::Alias(of) => {
            expect(of.relation.is_empty() && of.metadata.is_empty())?;
            holes([&of.expr])
        }
        Type::BinaryExpr(of) => match of.operands.as_slice() {
            [left, right] => expect(is_hole(left) && is_hole(right)),
            _ => Err(unexpected()),
        },
        Type::IsNullExpr(of) => holes([&of.expr]),
        Type::IsNotNullExpr(of) => holes([&of.expr]),
        Type::NotExpr(of) => holes([&of.expr]),
        Type::IsTrue(of) => holes([&of.expr]),
        Type::IsFalse(of) => holes([&of.expr]),
        Type::IsUnknown(of) => holes([&of.expr]),
        Type::IsNotTrue(of) => holes([&of.expr]),
        Type::IsNotFalse(of) => holes([&of.expr]),
        Type::IsNotUnknown(of) => holes([&of.expr]),
        Type::Negative(of) => holes([&of.expr]),
        Type::Between(of) => holes([&of.expr, &of.low, &of.high]),
        Type::Like(of) => {
            expect(of.escape_char.is_empty())?;
            holes([&of.expr, &of.pattern])
        }
        Type::Ilike(of) => {
            expect(of.escape_char.is_empty())?;
            holes([&of.expr, &of.pattern])
        }
        Type::SimilarTo(of) => {
            expect(of.escape_char.is_empty())?;
            holes([&of.expr, &of.pattern])
        }
        Type::Case(of) => {
            expect(of.when_then_expr.is_empty())?;
            optional(&of.expr)?;
            optional(&of.else_expr)
        }
        Type::Cast(of) => {
            expect(of.metadata.is_empty() && is_null_type(of.arrow_type.as_ref()))?;
            holes([&of.expr])
        }
        Type::TryCast(of) => {
            expect(of.metadata.is_empty() && is_null_type(of.arrow_type.as_ref()))?;
            holes([&of.expr])
        }
        Type::InList(of) => {
            expect(of.list.is_empty())?;
            holes([&of.expr])
        }
        Type::ScalarUdfExpr(of) => {
            expect(of.args.is_empty() && of.fun_definition.is_none())?;
            check_received(&of.fun_name)
        }
        Type::HigherOrderUdfExpr(of) => {
            expect(of.args.is_empty() && of.fun_definition.is_none())?;
            check_received_higher(&of.fun_name)
        }
        Type::Lambda(of) => holes([&of.body]),
        Type::LambdaVariable(of) => expect(of.field.is_none()),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> WireError {
    WireError::malformed("an expression that no plan has")
}

fn expect(is_expected: bool) -> Result<(), WireError> {
    if is_expected {
        Ok(())
    } else {
        Err(unexpected())
    }
}

fn holes<const N: usize>(children: [&Option<Box<LogicalExprNode>>; N]) -> Result<(), WireError> {
    let is_hole = |child: &Option<Box<LogicalExprNode>>| child.as_deref().is_some_and(is_hole);
    expect(children.into_iter().all(is_hole))
}

fn optional(child: &Option<Box<LogicalExprNode>>) -> Result<(), WireError> {
    expect(child.as_deref().is_none_or(is_hole))
}

fn is_hole(node: &LogicalExprNode) -> bool {
    match &node.expr_type {
        Some(ExprType::Column(column)) => column.relation.is_none() && column.name.is_empty(),
        _ => false,
    }
}

fn is_null_type(data_type: Option<&ArrowType>) -> bool {
    let data_type = data_type.and_then(|data_type| data_type.arrow_type_enum.as_ref());
    matches!(data_type, Some(ArrowTypeEnum::None(_)))
}
