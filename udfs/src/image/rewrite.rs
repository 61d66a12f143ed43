//! Image calls as expressions: reads the calls of a plan, and constructs new calls for the
//! optimiser's rules.

use std::sync::{Arc, LazyLock};

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF, lit};

use super::call::{ImageCall, Rectangle};
use super::fuse::{op_of, stage};
use super::program::ImageProgram;
use super::stage::{ProgramStage, rectangle_read};
use super::udf::ImageUdf;
use super::values::Interpolation;
use crate::args::MAX_SIDE;
use crate::catalogue::facts_of;
use crate::draw::Draws;
use crate::facts::FunctionFacts;

impl ImageCall {
    /// Reads the meaning of the call `expr`; `None` if `expr` does not call an image function, or a
    /// constant of the call is unknown.
    pub fn of(expr: &Expr) -> Option<Self> {
        let (stage, _) = stage(expr)?;
        Some(stage.op.call())
    }
}

/// Constructs `crop(image, ..)`; `None` if no call can express the rectangle.
pub fn crop(image: Expr, rectangle: Rectangle) -> Option<Expr> {
    let Rectangle {
        top,
        left,
        height,
        width,
    } = rectangle;
    let sides = [top, left, height as i64, width as i64].map(lit);
    call("crop", image, sides)
}

/// Constructs `resize(image, height, width, filter)`.
pub fn resize(image: Expr, (height, width): (usize, usize), filter: Interpolation) -> Option<Expr> {
    let named = Interpolation::NAMES
        .iter()
        .find(|(_, named)| *named == filter);
    let arguments = [
        lit(height as i64),
        lit(width as i64),
        lit(named.map(|(name, _)| *name)?),
    ];
    call("resize", image, arguments)
}

/// Constructs `normalize(image, mean, std)`.
pub fn normalize(image: Expr, mean: &[f64], std: &[f64]) -> Option<Expr> {
    let list = |numbers: &[f64]| {
        let numbers: Vec<ScalarValue> = numbers.iter().map(|&n| n.into()).collect();
        let list = ScalarValue::new_list_nullable(&numbers, &arrow::datatypes::DataType::Float64);
        lit(ScalarValue::List(list))
    };
    call("normalize", image, [list(mean), list(std)])
}

/// Constructs `decode_image(bytes, 'luma')`.
pub fn decode_luma(bytes: Expr) -> Option<Expr> {
    call("decode_image", bytes, [lit("luma")])
}

fn call<const N: usize>(name: &str, image: Expr, constants: [Expr; N]) -> Option<Expr> {
    static FUNCTIONS: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(ImageUdf::all);
    let func = Arc::clone(FUNCTIONS.iter().find(|f| f.name() == name)?);
    let mut args = vec![image];
    args.extend(constants);
    Some(Expr::ScalarFunction(ScalarFunction { func, args }))
}

/// Returns the facts of the function that `call` calls, refined by the constants of `call`. `None`
/// if the function is not in the catalogue.
pub fn facts_of_call(call: &ScalarFunction) -> Option<FunctionFacts> {
    let facts = *facts_of(call.func.name())?;
    Some(op_of(call).map_or(facts, |op| op.facts()))
}

/// Work of a call per image, in percent of the work of the function's documented example on the
/// same image. Prices are measured with that example. Functions whose constants do not matter have
/// 100.
pub fn work_of_call(call: &ScalarFunction) -> u64 {
    op_of(call).map_or(100, |op| op.work())
}

/// True if `call`, at the end of a program over bytes, needs no separate pass over the pixels,
/// because the call is applied while the image is written to its column.
pub fn is_written_out(call: &ScalarFunction) -> bool {
    op_of(call).is_some_and(|op| op.finish().is_some())
}

/// True if a program in `expr` decodes only the parts of photos that it reads, for which
/// [seek indexes](crate::seek_index_store) are of use.
pub fn decodes_regions(expr: &Expr) -> bool {
    let decodes = |expr: &Expr| {
        let Expr::ScalarFunction(call) = expr else {
            return false;
        };
        let program = call.func.inner().downcast_ref::<ImageProgram>();
        program.is_some_and(|program| decode_a_region(program.stages()))
    };
    expr.exists(|expr| Ok(decodes(expr))).unwrap_or(false)
}

/// True if a program of `calls`, each of which is applied to the result of the one before it,
/// decodes only the parts of photos that it reads.
pub fn calls_decode_regions<'e>(calls: impl Iterator<Item = &'e Expr>) -> bool {
    let stages = calls.map_while(stage).map(|(stage, _)| stage);
    decode_a_region(&stages.collect::<Vec<_>>())
}

/// True if a program of `stages` decodes only the parts of photos that it reads.
fn decode_a_region(stages: &[ProgramStage]) -> bool {
    // No crop is larger than this. The draws do not matter.
    const SIZE: (usize, usize) = (MAX_SIDE, MAX_SIDE);
    let [first, rest @ ..] = stages else {
        return false;
    };
    matches!(first.op.call(), ImageCall::Decode(of) if !of.is_strict)
        && rectangle_read(rest, SIZE, |_| Draws::new(0, 0, 0, 0)).is_some()
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;
    use crate::bind::bind_stream;
    use crate::facts::Algebra;
    use crate::functions::functions;
    use crate::image::values::{Decoding, Mode};

    #[test]
    fn calls_are_read_as_they_are_written() {
        let image = || col("image");
        let rectangle = Rectangle {
            top: -3,
            left: 4,
            height: 5,
            width: 6,
        };
        let read = |expr: Option<Expr>| ImageCall::of(&expr.unwrap()).unwrap();
        assert_eq!(read(crop(image(), rectangle)), ImageCall::Crop(rectangle));
        for (_, filter) in Interpolation::NAMES {
            let written = resize(image(), (7, 8), filter);
            assert_eq!(read(written), ImageCall::Resize(7, 8, filter));
        }
        let written = normalize(image(), &[0.5], &[0.25, 0.5, 1.0]);
        let expected = ImageCall::Normalize(vec![0.5], vec![0.25, 0.5, 1.0]);
        assert_eq!(read(written), expected);
        let luma = Decoding {
            mode: Mode::Luma,
            is_strict: false,
        };
        assert_eq!(read(decode_luma(image())), ImageCall::Decode(luma));
        assert_eq!(ImageCall::of(&image()), None);
    }

    #[test]
    fn constants_make_some_calls_copies() {
        let algebra = |expr: Expr| match expr {
            Expr::ScalarFunction(call) => facts_of_call(&call).unwrap().algebra,
            _ => Algebra::Opaque,
        };
        let nearest = resize(col("image"), (7, 8), Interpolation::Nearest).unwrap();
        assert_eq!(algebra(nearest), Algebra::Select);
        let mixed = resize(col("image"), (7, 8), Interpolation::Bilinear).unwrap();
        assert_eq!(algebra(mixed), Algebra::Spatial);
    }

    fn written(name: &str, constants: &[Expr]) -> ScalarFunction {
        let functions = functions();
        let func = functions.into_iter().find(|f| f.name() == name).unwrap();
        let args = [&[col("image")], constants].concat();
        ScalarFunction { func, args }
    }

    #[test]
    fn a_wider_kernel_is_more_work() {
        let blur = |side: i64| {
            let unbound = written("gaussian_blur", &[lit(side), lit(1.0), lit(1.0)]);
            match bind_stream(unbound, 0) {
                Ok(Expr::ScalarFunction(bound)) => work_of_call(&bound),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(blur(23), 100);
        assert_eq!(blur(47), 204);
        assert_eq!(work_of_call(&written("hflip", &[])), 100);
        assert_eq!(work_of_call(&written("rotate", &[lit(30)])), 100);
        let bilinear = written("rotate", &[lit(30), lit("bilinear")]);
        assert_eq!(work_of_call(&bilinear), 340);
    }

    #[test]
    fn writing_out_does_what_maps_each_byte() {
        assert!(is_written_out(&written("to_float", &[])));
        assert!(is_written_out(&written("hflip", &[])));
        assert!(!is_written_out(&written("vflip", &[])));
    }
}
