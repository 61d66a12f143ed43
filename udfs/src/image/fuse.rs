//! Fuses nested image functions into programs.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use super::op::{ImageFunction, ImageOp};
use super::program::ImageProgram;
use super::stage::ProgramStage;
use super::udf::ImageUdf;
use crate::args::CallArgs;
use crate::constant::constant;
use crate::row::ROW_COLUMN;
use crate::tensor::{Dtype, ImageLayout, TensorType};

/// Rewrites each maximal chain of two or more nested image functions into one program, whose result
/// has the same field and the same bytes as the chain's result. A random function that is not
/// bound, or a function with unknown constants, ends a chain. The name of a rewritten expression
/// changes; a caller that needs the old name must add an alias.
pub fn fuse(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| match chain(&expr) {
        Some((stages, input)) if stages.len() > 1 => {
            let random = stages.iter().any(|s| s.stream.is_some());
            let func = ImageProgram::new(stages).udf();
            let mut args = vec![input];
            if random {
                args.push(Expr::Column(Column::new_unqualified(ROW_COLUMN)));
            }
            let program = Expr::ScalarFunction(ScalarFunction { func, args });
            Ok(Transformed::new(program, true, TreeNodeRecursion::Continue))
        }
        _ => Ok(Transformed::no(expr)),
    })
}

/// Returns the longest chain whose outermost call is `expr`, innermost function first, and the
/// expression that the chain reads.
pub(super) fn chain(expr: &Expr) -> Option<(Vec<ProgramStage>, Expr)> {
    let mut stages = Vec::new();
    let mut current = expr;
    while let Some((stage, image)) = stage(current) {
        stages.push(stage);
        current = image;
    }
    stages.reverse();
    (!stages.is_empty()).then(|| (stages, current.clone()))
}

/// Converts a call of an image function to a stage. Returns the stage and the image argument of the
/// call; `None` if `expr` is not such a call, or a constant of the call is unknown.
pub(super) fn stage(expr: &Expr) -> Option<(ProgramStage, &Expr)> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else {
        return None;
    };
    let function = func.inner().downcast_ref::<ImageUdf>()?.function();
    let (own, stream) = match (function.is_random(), args.as_slice()) {
        (true, [own @ .., stream, Expr::Column(row)]) if row.name == ROW_COLUMN => {
            let Some(ScalarValue::UInt64(Some(stream))) = constant(stream) else {
                return None;
            };
            (own, Some(stream))
        }
        (true, _) => return None,
        (false, own) => (own, None),
    };
    let (image, constants) = own.split_first()?;
    let op = constants_of(function, constants)?;
    Some((ProgramStage { op, stream }, image))
}

/// Returns the image function that `call` calls, with its constants; `None` if the function is not
/// an image function, or a constant is unknown.
pub(super) fn op_of(call: &ScalarFunction) -> Option<Arc<dyn ImageOp>> {
    let (stage, _) = stage(&Expr::ScalarFunction(call.clone()))?;
    Some(stage.op)
}

/// Parses the constants of a call whose image type is unknown. `None` if a constant is unknown or
/// invalid; the type check of the call reports an invalid constant.
fn constants_of(function: &ImageFunction, constants: &[Expr]) -> Option<Arc<dyn ImageOp>> {
    // The image's type affects only the allowed range of a threshold, which was checked when the
    // call was planned. So a byte image stands for either type here: its range includes the range
    // for a float image.
    let image = TensorType {
        dtype: Dtype::U8,
        channels: 3,
        layout: ImageLayout::Hwc,
        shape: None,
    };
    let mut values = vec![None];
    let mut fields: Vec<FieldRef> = vec![Arc::new(image.to_field("image"))];
    for expr in constants {
        let value = constant(expr)?;
        fields.push(Arc::new(Field::new("constant", value.data_type(), true)));
        values.push(Some(value));
    }
    let args = CallArgs::literal(function.info.name, &fields, values);
    (function.parse)(&args, Some(image)).ok()
}
