//! Fusing nested image functions into programs.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use super::function::ImageFunction;
use super::op::ImageOp;
use super::parse::parse;
use super::program::ImageProgram;
use super::run::Stage;
use crate::args::Args;
use crate::constant::constant;
use crate::row::ROW_COLUMN;
use crate::tensor::{Dtype, Layout, TensorType};

/// Rewrites each maximal chain of two or more nested image functions into one program with the same
/// field and bytes. Functions that are random but not bound, or whose constants are not known yet,
/// end a chain. The name of a rewritten expression changes: a caller that needs it adds an alias.
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

/// The longest chain that ends at `expr`, innermost function first, and its input.
fn chain(expr: &Expr) -> Option<(Vec<Stage>, Expr)> {
    let mut stages = Vec::new();
    let mut current = expr;
    while let Some((stage, image)) = stage(current) {
        stages.push(stage);
        current = image;
    }
    stages.reverse();
    (!stages.is_empty()).then(|| (stages, current.clone()))
}

/// A call of an image function and its image; `None` where its constants are not known.
pub(super) fn stage(expr: &Expr) -> Option<(Stage, &Expr)> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else {
        return None;
    };
    let function = func.inner().downcast_ref::<ImageFunction>()?;
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
    let op = constants_of(func.name(), constants)?;
    Some((Stage { op, stream }, image))
}

/// Reads the constants of a call without its image. A call that is wrong stays as it is, and its
/// own check says why.
fn constants_of(name: &str, constants: &[Expr]) -> Option<ImageOp> {
    // Only the range of a threshold depends on the image's type, and that was checked when the call
    // was planned; a byte image has the wider one.
    let image = TensorType {
        dtype: Dtype::U8,
        channels: 3,
        layout: Layout::Hwc,
        shape: None,
    };
    let mut values = vec![None];
    let mut fields: Vec<FieldRef> = vec![Arc::new(image.to_field("image"))];
    for expr in constants {
        let value = constant(expr)?;
        fields.push(Arc::new(Field::new("constant", value.data_type(), true)));
        values.push(Some(value));
    }
    parse(&Args::literal(name, &fields, values), Some(image)).ok()
}
