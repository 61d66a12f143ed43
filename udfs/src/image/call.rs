//! Image calls as the optimiser's rules read and write them: what a call does, by its constants.
//!
//! Facts say what a function is; an identity between two calls (a crop of a crop is a crop) needs their
//! constants too.

use std::sync::{Arc, LazyLock};

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF, lit};

use super::ImageFunction;
use super::fuse::stage;
use super::op::{Filter, ImageOp, Mode, Real};
use super::step::centred;
use crate::args::MAX_SIDE;
use crate::facts::{Algebra, FunctionFacts};
use crate::tensor::Dtype;

/// A rectangle of places, which may lie outside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rectangle {
    /// First row.
    pub top: i64,
    /// First column.
    pub left: i64,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Rectangle {
    /// Whether an image of this height and width holds all of it.
    pub const fn is_within(&self, (height, width): (usize, usize)) -> bool {
        self.top >= 0
            && self.left >= 0
            && self.top as u64 + self.height as u64 <= height as u64
            && self.left as u64 + self.width as u64 <= width as u64
    }

    /// The rectangle in the image of this size after it is mirrored.
    pub const fn mirrored(self, axis: Axis, (height, width): (usize, usize)) -> Self {
        match axis {
            Axis::Horizontal => Self {
                left: width as i64 - self.left - self.width as i64,
                ..self
            },
            Axis::Vertical => Self {
                top: height as i64 - self.top - self.height as i64,
                ..self
            },
        }
    }

    /// Whether a call of `crop` may name it.
    pub const fn is_writable(&self) -> bool {
        let most = MAX_SIDE as i64;
        self.top >= -most && self.top <= most && self.left >= -most && self.left <= most
    }
}

/// Which way an image is mirrored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Left and right.
    Horizontal,
    /// Top and bottom.
    Vertical,
}

/// What a call of an image function does, for the functions that identities are about.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageCall {
    /// Encoded bytes to pixels.
    Decode(Mode),
    /// A rectangle is cut out.
    Crop(Rectangle),
    /// A rectangle of this height and width is cut out of the middle.
    CenterCrop(usize, usize),
    /// The image is mirrored, if so drawn where the function draws.
    Mirror(Axis),
    /// The image is brought to a height and width.
    Resize(usize, usize, Filter),
    /// The image's shorter side is brought to a size.
    ResizeShortest(usize, Filter),
    /// Samples become floats.
    ToFloat(Dtype),
    /// A mean is subtracted, a standard deviation divided by: a number, or one a channel.
    Normalize(Vec<f64>, Vec<f64>),
    /// The image is brought to gray with this many channels.
    Grayscale(usize),
    /// Anything else.
    Other,
}

impl ImageCall {
    /// Reads a call; `None` where it is of no image function, or its constants are not known.
    pub fn of(expr: &Expr) -> Option<Self> {
        let (stage, _) = stage(expr)?;
        let plain = |values: Vec<Real>| values.into_iter().map(|v| v.0).collect();
        Some(match stage.op {
            ImageOp::Decode(mode) => Self::Decode(mode),
            ImageOp::Crop {
                at: (top, left),
                size: (height, width),
            } => Self::Crop(Rectangle {
                top,
                left,
                height,
                width,
            }),
            ImageOp::CenterCrop { size: (h, w) } => Self::CenterCrop(h, w),
            ImageOp::FlipHorizontal | ImageOp::RandomFlipHorizontal { .. } => {
                Self::Mirror(Axis::Horizontal)
            }
            ImageOp::FlipVertical | ImageOp::RandomFlipVertical { .. } => {
                Self::Mirror(Axis::Vertical)
            }
            ImageOp::Resize {
                size: (h, w),
                filter,
            } => Self::Resize(h, w, filter),
            ImageOp::ResizeShortest { size, filter } => Self::ResizeShortest(size, filter),
            ImageOp::ToFloat { dtype } => Self::ToFloat(dtype),
            ImageOp::Normalize { mean, std } => Self::Normalize(plain(mean), plain(std)),
            ImageOp::Grayscale { channels } => Self::Grayscale(channels),
            _ => Self::Other,
        })
    }

    /// The rectangle that a crop cuts out of an image, whose size a central one must know.
    pub fn rectangle(&self, size: Option<(usize, usize)>) -> Option<Rectangle> {
        match (self, size) {
            (Self::Crop(rectangle), _) => Some(*rectangle),
            (&Self::CenterCrop(height, width), Some((h, w))) => Some(Rectangle {
                top: centred(h, height),
                left: centred(w, width),
                height,
                width,
            }),
            _ => None,
        }
    }
}

/// `crop(image, ..)`.
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

/// `resize(image, height, width, filter)`.
pub fn resize(image: Expr, (height, width): (usize, usize), filter: Filter) -> Option<Expr> {
    let named = Filter::NAMES.iter().find(|(_, named)| *named == filter);
    let arguments = [
        lit(height as i64),
        lit(width as i64),
        lit(named.map(|(name, _)| *name)?),
    ];
    call("resize", image, arguments)
}

/// `normalize(image, mean, std)`.
pub fn normalize(image: Expr, mean: &[f64], std: &[f64]) -> Option<Expr> {
    let list = |numbers: &[f64]| {
        let numbers: Vec<ScalarValue> = numbers.iter().map(|&n| n.into()).collect();
        let list = ScalarValue::new_list_nullable(&numbers, &arrow::datatypes::DataType::Float64);
        lit(ScalarValue::List(list))
    };
    call("normalize", image, [list(mean), list(std)])
}

/// `decode_image(bytes, 'luma')`.
pub fn decode_luma(bytes: Expr) -> Option<Expr> {
    call("decode_image", bytes, [lit("luma")])
}

fn call<const N: usize>(name: &str, image: Expr, constants: [Expr; N]) -> Option<Expr> {
    static FUNCTIONS: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(ImageFunction::udfs);
    let func = Arc::clone(FUNCTIONS.iter().find(|f| f.name() == name)?);
    let mut args = vec![image];
    args.extend(constants);
    Some(Expr::ScalarFunction(ScalarFunction { func, args }))
}

/// The facts of a call: those of its function, and what its constants add.
pub fn facts_of_call(call: &ScalarFunction) -> Option<FunctionFacts> {
    let facts = *crate::facts_of(call.func.name())?;
    let copies = match (facts.algebra, stage_of(call)) {
        // The nearest pixel is a copy, and what is cut out without padding lies inside.
        (
            Algebra::Spatial,
            Some(
                ImageOp::Resize {
                    filter: Filter::Nearest,
                    ..
                }
                | ImageOp::ResizeShortest {
                    filter: Filter::Nearest,
                    ..
                }
                | ImageOp::RandomResizedCrop {
                    filter: Filter::Nearest,
                    ..
                }
                | ImageOp::RandomCrop {
                    sides: [0, 0, 0, 0],
                    ..
                },
            ),
        ) => true,
        _ => false,
    };
    Some(match copies {
        true => FunctionFacts {
            algebra: Algebra::Select,
            ..facts
        },
        false => facts,
    })
}

pub(super) fn stage_of(call: &ScalarFunction) -> Option<ImageOp> {
    let (stage, _) = stage(&Expr::ScalarFunction(call.clone()))?;
    Some(stage.op)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

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
        for (_, filter) in Filter::NAMES {
            let written = resize(image(), (7, 8), filter);
            assert_eq!(read(written), ImageCall::Resize(7, 8, filter));
        }
        let written = normalize(image(), &[0.5], &[0.25, 0.5, 1.0]);
        let expected = ImageCall::Normalize(vec![0.5], vec![0.25, 0.5, 1.0]);
        assert_eq!(read(written), expected);
        assert_eq!(read(decode_luma(image())), ImageCall::Decode(Mode::Luma));
        assert_eq!(ImageCall::of(&image()), None);
    }

    #[test]
    fn rectangles_are_mirrored_about_the_middle() {
        let corner = Rectangle {
            top: 0,
            left: -2,
            height: 3,
            width: 4,
        };
        let size = (10, 8);
        assert!(!corner.is_within(size));
        let across = corner.mirrored(Axis::Horizontal, size);
        assert_eq!((across.top, across.left), (0, 6));
        assert_eq!(across.mirrored(Axis::Horizontal, size), corner);
        assert_eq!(corner.mirrored(Axis::Vertical, size).top, 7);
        let middle = ImageCall::CenterCrop(4, 4).rectangle(Some(size));
        assert!(middle.is_some_and(|r| r.is_within(size) && (r.top, r.left) == (3, 2)));
        assert_eq!(ImageCall::CenterCrop(4, 4).rectangle(None), None);
    }

    #[test]
    fn constants_make_some_calls_copies() {
        let algebra = |expr: Expr| match expr {
            Expr::ScalarFunction(call) => facts_of_call(&call).unwrap().algebra,
            _ => Algebra::Opaque,
        };
        let nearest = resize(col("image"), (7, 8), Filter::Nearest).unwrap();
        assert_eq!(algebra(nearest), Algebra::Select);
        let mixed = resize(col("image"), (7, 8), Filter::Bilinear).unwrap();
        assert_eq!(algebra(mixed), Algebra::Spatial);
    }
}
