//! An expression as the steps that compute it.

use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use forebay_udfs::facts::Algebra;

use super::spec::algebra;
use crate::rows::slot as column;

/// A step of an expression.
#[derive(Debug)]
pub(super) struct Step {
    /// Its value.
    pub(super) expr: Expr,
    /// Whether the user fixed its place.
    pub(super) pinned: bool,
}

/// The steps of an expression, the innermost first: nested image functions one by one, each over the
/// slot that the one before it wrote.
pub(super) fn chain(expr: Expr, slot: &str) -> Result<Vec<Step>> {
    let step = |expr| -> Result<Step> {
        let plain = forebay_udfs::without_pins(expr)?;
        Ok(Step {
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
