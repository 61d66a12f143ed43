//! Splits an expression of nested image functions into a chain of operators.

use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use forebay_udfs::facts::Algebra;

use super::spec::algebra;
use crate::rows::slot as column;

/// One operator of the chain into which an expression is split.
#[derive(Debug)]
pub(super) struct ChainLink {
    /// The expression that the operator computes.
    pub(super) expr: Expr,
    /// True if the user marked the operator's expression as PINNED.
    pub(super) pinned: bool,
}

/// Splits `expr` into operators, innermost first. Each nested image function becomes one operator,
/// which reads the image that the previous operator wrote to `slot`.
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
