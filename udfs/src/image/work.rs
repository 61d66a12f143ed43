//! How much work a call is, beside another one of its function.

use datafusion::logical_expr::expr::ScalarFunction;

use super::call::stage_of;
use super::op::{Filter, ImageOp};
use super::output;

/// Work of a call for the same image, in hundredths of that of the function's example in the catalogue:
/// prices are measured with the examples. Functions whose constants do not matter have 100.
pub fn work_of_call(call: &ScalarFunction) -> u64 {
    match stage_of(call) {
        // Two passes, with a product for each weight.
        Some(ImageOp::GaussianBlur { kernel: (h, w), .. }) => {
            /// Weights of the example's kernel, 23 x 23.
            const TAPS: usize = 46;
            (100 * (h + w) / TAPS) as u64
        }
        Some(ImageOp::Rotate { turn, .. } | ImageOp::RandomRotate { turn, .. }) => {
            /// Four pixels are read and weighed where the examples take the nearest one: `forebay calibrate` gave
            /// 10.5 ns a value beside 3.1.
            const BILINEAR: u64 = 340;
            match turn.filter {
                Filter::Nearest => 100,
                _ => BILINEAR,
            }
        }
        _ => 100,
    }
}

/// Whether a call takes no pass of its own at the end of a program over bytes: writing the image to its
/// column does it.
pub fn is_written_out(call: &ScalarFunction) -> bool {
    stage_of(call).is_some_and(|op| output::is_written_out(&op))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Expr, col, lit};

    use super::*;
    use crate::bind_stream;

    fn call(name: &str, constants: &[Expr]) -> ScalarFunction {
        let functions = crate::functions();
        let func = functions.into_iter().find(|f| f.name() == name).unwrap();
        let args = [&[col("image")], constants].concat();
        ScalarFunction { func, args }
    }

    #[test]
    fn a_wider_kernel_is_more_work() {
        let blur = |side: i64| {
            let unbound = call("gaussian_blur", &[lit(side), lit(1.0), lit(1.0)]);
            match bind_stream(unbound, 0) {
                Ok(Expr::ScalarFunction(bound)) => work_of_call(&bound),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(blur(23), 100);
        assert_eq!(blur(47), 204);
        assert_eq!(work_of_call(&call("hflip", &[])), 100);
        assert_eq!(work_of_call(&call("rotate", &[lit(30)])), 100);
        let bilinear = call("rotate", &[lit(30), lit("bilinear")]);
        assert_eq!(work_of_call(&bilinear), 340);
    }

    #[test]
    fn writing_out_does_what_maps_each_byte() {
        assert!(is_written_out(&call("to_float", &[])));
        assert!(is_written_out(&call("hflip", &[])));
        assert!(!is_written_out(&call("vflip", &[])));
    }
}
