//! Estimates, from the header of one image, the memory for decoding the image and running functions
//! on it.

use super::codec::EncodedHeader;
use super::kernel::resize::weight_bytes;
use super::op::{Buffers, ImageOp};
use super::pixels::MAX_PIXELS;
use crate::tensor::TensorType;

/// Peak memory of a row, in bytes, up to which no memory is requested, since each thread keeps
/// buffers of that size anyway.
const SMALL: u64 = 4 << 20;

/// The memory that decoding one image and running its functions takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Maximum number of bytes in use while the row is computed, including the row's result.
    pub(super) peak: u64,
    /// Size of the row's result, in bytes.
    pub(super) result: u64,
}

impl Footprint {
    /// True if the row needs so little memory that none has to be requested.
    pub(super) const fn is_small(&self) -> bool {
        self.peak <= SMALL
    }

    /// Estimates the footprint of an image that is decoded to the type `decoded` (whose shape is
    /// taken from `header`) and passes through `ops`. If an operator would fail, the estimate
    /// covers the operators before that operator.
    pub(super) fn of<'a>(
        header: &EncodedHeader,
        decoded: TensorType,
        ops: impl Iterator<Item = &'a dyn ImageOp>,
    ) -> Self {
        let mut image = TensorType {
            shape: Some((header.height, header.width)),
            ..decoded
        };
        // Buffers only grow. The front buffer and the back buffer have one vector for bytes and one
        // vector for floats each.
        let (mut front, mut back) = ([0, 0], [0, 0]);
        front[buffer(image)] = bytes(image);
        let mut between = 0;
        for op in ops {
            let before = image;
            image = match op.result(Some(image)) {
                Ok(output) => TensorType {
                    // The shape depends on draws. No rotated image has more pixels than `turned`
                    // returns.
                    shape: output.shape.or_else(|| turned(before)),
                    ..output
                },
                Err(_) => break,
            };
            if pixels(image) > MAX_PIXELS {
                break;
            }
            let place = buffer(image);
            if op.buffers() == Buffers::InPlace {
                front[place] = front[place].max(bytes(image));
                continue;
            }
            back[place] = back[place].max(bytes(image));
            (front, back) = (back, front);
            if op.buffers() == Buffers::Resize {
                between = between.max(resizing(before, image));
            }
        }
        let result = pixels(image)
            .saturating_mul(image.channels as u64)
            .saturating_mul(image.dtype.bytes() as u64);
        let buffers: u64 = front.iter().chain(&back).sum();
        let running = buffers.saturating_add(between).saturating_add(result);
        Self {
            peak: running.max(header.decoding),
            result,
        }
    }
}

fn pixels(image: TensorType) -> u64 {
    let (height, width) = image.shape.unwrap_or((0, 0));
    (height as u64).saturating_mul(width as u64)
}

/// Returns the index of the vector that holds an image's elements: 0 for bytes, 1 for floats, which
/// kernels compute in single precision.
fn buffer(image: TensorType) -> usize {
    usize::from(image.dtype.is_float())
}

/// Size of an image's elements, in bytes, while kernels run.
fn bytes(image: TensorType) -> u64 {
    let element = if image.dtype.is_float() { 4 } else { 1 };
    pixels(image)
        .saturating_mul(image.channels as u64)
        .saturating_mul(element)
}

/// Returns a shape with as many pixels as the image has after the rotation that makes the image
/// largest: half of the squared sum of both sides.
fn turned(image: TensorType) -> Option<(usize, usize)> {
    let (height, width) = image.shape?;
    let side = height.saturating_add(width);
    Some((side, side.div_ceil(2)))
}

/// Number of bytes of the buffers of a resize: the image between the two passes, in whichever order they are, and the
/// weights of one direction.
fn resizing(before: TensorType, after: TensorType) -> u64 {
    let (Some(from), Some(to)) = (before.shape, after.shape) else {
        return 0;
    };
    let between = |size| bytes(after.of_shape(Some(size)));
    let weights = weight_bytes(from.0, to.0).max(weight_bytes(from.1, to.1));
    between((from.0, to.1))
        .max(between((to.0, from.1)))
        .saturating_add(weights)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Expr, col, lit};

    use super::*;
    use crate::image::testing::{call, op};
    use crate::image::values::Mode;

    const SIDE: usize = 10_000;

    fn of(ops: &[Expr]) -> Footprint {
        let header = EncodedHeader {
            height: SIDE,
            width: SIDE,
            decoding: 400_000_000,
        };
        let ops: Vec<_> = ops.iter().map(op).collect();
        Footprint::of(&header, Mode::Rgb.decoded(), ops.iter().map(|op| &**op))
    }

    #[test]
    fn a_footprint_has_the_buffers_of_all_functions_and_the_result() {
        let pixels = 300_000_000;
        assert_eq!(
            of(&[]),
            Footprint {
                peak: 2 * pixels,
                result: pixels
            }
        );
        let resize = || call("resize", vec![col("image"), lit(100), lit(200)]);
        let small = of(&[resize()]);
        assert_eq!(small.result, 60_000);
        // Decoding takes more memory than the functions after it.
        assert_eq!(small.peak, 400_000_000);
        let to_float = || call("to_float", vec![col("image")]);
        let floats = of(&[to_float(), resize()]);
        assert_eq!(floats.result, 240_000);
        let between = (SIDE * 200 * 3 * 4) as u64;
        let weights = weight_bytes(SIDE, 200);
        assert_eq!(floats.peak, 5 * pixels + between + weights + 2 * 240_000);
        // A thin image is larger between the two passes in one of their orders.
        let thin = |size: (usize, usize)| {
            let of = |(height, width)| Mode::Luma.decoded().of_shape(Some((height, width)));
            resizing(of(size), of((2000, 10)))
        };
        assert_eq!(
            thin((100, 60_000)),
            60_000 * 2000 + weight_bytes(60_000, 10)
        );
        assert!(!small.is_small());
    }
}
