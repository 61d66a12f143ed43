//! Splits a chain of image functions before its last functions.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::Column;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};

use super::call::ImageCall;
use super::fuse::chain;
use super::input::ImageKind;
use super::program::ImageProgram;
use super::stage::ProgramStage;
use crate::facts::Algebra;
use crate::row::ROW_COLUMN;
use crate::tensor::TensorType;

/// A chain of image functions in two parts.
#[derive(Debug, Clone)]
pub struct SplitChain {
    /// The first part, whose result is an image with narrower samples than the result of the chain.
    pub first: Expr,
    /// The last part, as a function of the image that `first` returns.
    pub last: Arc<ScalarUDF>,
}

/// Splits `expr`, a call of image functions, before the last functions if these only convert each
/// sample to a wider type, such as `normalize` of bytes. The two parts one after the other return
/// the bytes that `expr` returns. `field_of` returns the field of an expression.
///
/// Returns `None` if `expr` does not end with such functions.
pub fn split_widening(
    expr: &Expr,
    field_of: impl Fn(&Expr) -> Option<FieldRef>,
) -> Option<SplitChain> {
    let (stages, image) = stages_of(expr)?;
    let function = stages.first()?;
    let decodes = matches!(function.op.call(), ImageCall::Decode(_));
    let kind = ImageKind::of(&*field_of(&image)?, function.op.name(), decodes).ok()?;
    let mut current = kind.tensor();
    let mut before: Vec<Option<TensorType>> = Vec::with_capacity(stages.len());
    for stage in &stages {
        before.push(current);
        current = Some(stage.op.result(current).ok()?);
    }
    let result = current?;
    let others = stages.iter().rposition(|stage| !converts(stage));
    let movable = others.map_or(0, |at| at + 1)..stages.len();
    let is_narrower =
        |at: &usize| before[*at].is_some_and(|tensor| tensor.dtype.bytes() < result.dtype.bytes());
    // The last split point moves the fewest functions.
    let at = movable.rev().find(is_narrower)?;
    let mut first = stages;
    let last = ImageProgram::new(first.split_off(at)).udf();
    Some(SplitChain {
        first: call(first, image),
        last,
    })
}

/// Returns the functions that `expr` calls, innermost function first, and the image that they read.
/// `None` if `expr` does not call an image function.
fn stages_of(expr: &Expr) -> Option<(Vec<ProgramStage>, Expr)> {
    if let Expr::ScalarFunction(ScalarFunction { func, args }) = expr
        && let Some(program) = func.inner().downcast_ref::<ImageProgram>()
    {
        return Some((program.stages().to_vec(), args.first()?.clone()));
    }
    chain(expr)
}

/// Returns the call of `stages` on `image`, or `image` if there are none.
fn call(stages: Vec<ProgramStage>, image: Expr) -> Expr {
    if stages.is_empty() {
        return image;
    }
    let program = ImageProgram::new(stages);
    let mut args = vec![image];
    if program.is_random() {
        args.push(Expr::Column(Column::new_unqualified(ROW_COLUMN)));
    }
    Expr::ScalarFunction(ScalarFunction {
        func: program.udf(),
        args,
    })
}

/// True if a function only converts samples, without draws and without errors.
fn converts(stage: &ProgramStage) -> bool {
    let facts = stage.op.facts();
    let keeps_pixels = matches!(facts.algebra, Algebra::Pointwise | Algebra::Layout);
    stage.stream.is_none() && keeps_pixels && facts.keeps_shape && !facts.fallible
}
