//! Splits an expression into a chain of operators.

use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use forebay_udfs::facts::Algebra;

use super::spec::algebra;
use crate::rows::slot as column;

/// A link of the chain: one operator of an expression.
#[derive(Debug)]
pub(super) struct ChainLink {
    /// The expression that the operator computes.
    pub(super) expr: Expr,
    /// True if the user pinned the operator.
    pub(super) pinned: bool,
}

/// Splits an expression into links, innermost first. Each nested image function is one link, which
/// reads the slot that the previous link wrote.
pub(super) fn chain(expr: Expr, slot: &str) -> Result<Vec<ChainLink>> {
    let step = |expr| -> Result<ChainLink> {
        let plain = forebay_udfs::without_pins(expr)?;
        Ok(ChainLink {
            expr: plain.data,
            pinned: plain.transformed,
        })
    };
    if let Some(inner) = forebay_udfs::pinned(&expr) {
        let mut steps = chain(inner.clone(), slot)?;
        if let Some(last) = steps.last_mut() {
            last.pinned = true;
        }
        return Ok(steps);
    }
    let Expr::ScalarFunction(ScalarFunction { func, mut args }) = expr else {
        return Ok(vec![step(expr)?]);
    };
    match args.first_mut() {
        Some(inner) if !matches!(algebra(inner), Algebra::Opaque) => {
            let below = std::mem::replace(inner, column(slot));
            let mut steps = chain(below, slot)?;
            steps.push(step(Expr::ScalarFunction(ScalarFunction { func, args }))?);
            Ok(steps)
        }
        _ => Ok(vec![step(Expr::ScalarFunction(ScalarFunction {
            func,
            args,
        }))?]),
    }
}
