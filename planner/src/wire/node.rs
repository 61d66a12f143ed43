//! Single nodes of expressions: a node without its children, which travel as nodes of their own.
//!
//! A node with a fixed number of children has *holes* in their places, and a call, a list or a CASE
//! has none. So a node is never deep, and neither the recursion of datafusion-proto nor prost's
//! limit of 100 levels bounds the depth of an expression.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{
    Alias, Between, BinaryExpr, Case, Cast, HigherOrderFunction, InList, Lambda, LambdaVariable,
    Like, ScalarFunction, TryCast,
};

use super::error::WireError;
use super::registry::{check_sent, check_sent_higher};

/// Maximum depth of an expression. Planning recurses over expressions, and 2 MiB of stack hold
/// about 400 levels.
pub(super) const MAX_DEPTH: usize = 384;

/// Maximum length of the encoding of a node by datafusion-proto. A node has only names and numbers,
/// but prost allocates up to a hundred times the length of what it decodes.
pub(super) const MAX_NODE: usize = 1 << 16;

/// Returns the expression in the place of a child.
pub(super) fn hole() -> Expr {
    Expr::Column(Column::new_unqualified(""))
}

/// Returns the children of an expression, in the order in which [`filled`] takes them.
pub(super) fn children(expr: &Expr) -> Vec<&Expr> {
    let mut children = Vec::new();
    // The closure does not fail.
    let _ = expr.apply_children(|child| {
        children.push(child);
        Ok(TreeNodeRecursion::Continue)
    });
    children
}

/// Returns an expression without its children, and without the parts that datafusion-proto loses.
///
/// # Errors
/// Fails on an expression that no pipeline has, and on a function that the receiver does not have.
pub(super) fn shallow(expr: &Expr) -> Result<Expr, WireError> {
    let hole = || Box::new(hole());
    let any = || Arc::new(Field::new("", DataType::Null, true));
    let unsupported = || Err(WireError::Unsupported(format!("the expression {expr}")));
    Ok(match expr {
        Expr::Column(column) if column.relation.is_none() => expr.clone(),
        Expr::Literal(value, _) => Expr::Literal(value.clone(), None),
        Expr::Alias(alias) if alias.relation.is_none() => {
            Expr::Alias(Alias::new(self::hole(), None::<&str>, &alias.name))
        }
        Expr::BinaryExpr(binary) => Expr::BinaryExpr(BinaryExpr::new(hole(), binary.op, hole())),
        Expr::Like(like) => {
            let case_insensitive = like.case_insensitive;
            Expr::Like(Like::new(
                like.negated,
                hole(),
                hole(),
                None,
                case_insensitive,
            ))
        }
        Expr::SimilarTo(like) => {
            Expr::SimilarTo(Like::new(like.negated, hole(), hole(), None, false))
        }
        Expr::Not(_) => Expr::Not(hole()),
        Expr::IsNull(_) => Expr::IsNull(hole()),
        Expr::IsNotNull(_) => Expr::IsNotNull(hole()),
        Expr::IsTrue(_) => Expr::IsTrue(hole()),
        Expr::IsFalse(_) => Expr::IsFalse(hole()),
        Expr::IsUnknown(_) => Expr::IsUnknown(hole()),
        Expr::IsNotTrue(_) => Expr::IsNotTrue(hole()),
        Expr::IsNotFalse(_) => Expr::IsNotFalse(hole()),
        Expr::IsNotUnknown(_) => Expr::IsNotUnknown(hole()),
        Expr::Negative(_) => Expr::Negative(hole()),
        Expr::Between(between) => {
            Expr::Between(Between::new(hole(), between.negated, hole(), hole()))
        }
        Expr::Cast(_) => Expr::Cast(Cast::new_from_field(hole(), any())),
        Expr::TryCast(_) => Expr::TryCast(TryCast::new_from_field(hole(), any())),
        Expr::Case(case) => Expr::Case(Case::new(
            case.expr.as_ref().map(|_| hole()),
            Vec::new(),
            case.else_expr.as_ref().map(|_| hole()),
        )),
        Expr::InList(list) => Expr::InList(InList::new(hole(), Vec::new(), list.negated)),
        Expr::ScalarFunction(call) => {
            check_sent(&call.func)?;
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&call.func), Vec::new()))
        }
        Expr::HigherOrderFunction(call) => {
            check_sent_higher(&call.func)?;
            let func = Arc::clone(&call.func);
            Expr::HigherOrderFunction(HigherOrderFunction::new(func, Vec::new()))
        }
        Expr::Lambda(lambda) => Expr::Lambda(Lambda::new(lambda.params.clone(), self::hole())),
        Expr::LambdaVariable(variable) => {
            Expr::LambdaVariable(LambdaVariable::new(variable.name.clone(), None))
        }
        _ => return unsupported(),
    })
}

/// Returns a node with these children.
///
/// # Errors
/// Fails if the node has another number of children.
pub(super) fn filled(node: Expr, children: Vec<Expr>) -> Result<Expr, WireError> {
    let wrong = || WireError::malformed("an expression with the wrong number of children");
    let mut children = children.into_iter();
    let mut next = || children.next().map(Box::new).ok_or_else(wrong);
    let filled = match node {
        Expr::ScalarFunction(mut call) => {
            call.args = children.by_ref().collect();
            Expr::ScalarFunction(call)
        }
        Expr::HigherOrderFunction(mut call) => {
            call.args = children.by_ref().collect();
            Expr::HigherOrderFunction(call)
        }
        Expr::InList(list) => {
            let tested = next()?;
            Expr::InList(InList::new(
                tested,
                children.by_ref().collect(),
                list.negated,
            ))
        }
        Expr::Case(case) => {
            let tested = case.expr.map(|_| next()).transpose()?;
            let rest: Vec<Expr> = children.by_ref().collect();
            let is_odd = rest.len() % 2 == 1;
            if is_odd != case.else_expr.is_some() || rest.len() < 2 {
                return Err(wrong());
            }
            let mut rest = rest.into_iter().map(Box::new);
            let mut branches = Vec::new();
            let mut otherwise = None;
            while let Some(when) = rest.next() {
                match rest.next() {
                    Some(then) => branches.push((when, then)),
                    None => otherwise = Some(when),
                }
            }
            Expr::Case(Case::new(tested, branches, otherwise))
        }
        node => {
            let filled = node.map_children(|_| match children.next() {
                Some(child) => Ok(Transformed::yes(child)),
                None => datafusion::common::internal_err!("too few children"),
            });
            filled.map_err(|_| wrong())?.data
        }
    };
    match children.next() {
        None => Ok(filled),
        Some(_) => Err(wrong()),
    }
}
