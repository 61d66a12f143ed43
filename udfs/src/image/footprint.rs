//! The memory that one image takes while it is decoded and its functions run, estimated from its header.

use super::codec::{Header, MAX_PIXELS};
use super::op::ImageOp;
use crate::tensor::TensorType;

/// Bytes below which nothing is asked for: what a thread keeps between rows anyway.
const SMALL: u64 = 4 << 20;

/// Memory of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Bytes at most while the row is computed, its result included.
    pub(super) peak: u64,
    /// Bytes of the result.
    pub(super) result: u64,
}

impl Footprint {
    /// Whether it is as little as every row takes.
    pub(super) const fn is_small(&self) -> bool {
        self.peak <= SMALL
    }

    /// The footprint of an image that is decoded to `decoded`, a type of no shape, and goes through `ops`. What
    /// fails on its way there takes no more than it had until then.
    pub(super) fn of<'a>(
        header: &Header,
        decoded: TensorType,
        ops: impl Iterator<Item = &'a ImageOp>,
    ) -> Self {
        let mut image = TensorType {
            shape: Some((header.height, header.width)),
            ..decoded
        };
        // Buffers grow and stay: two, each with memory for bytes and for floats.
        let (mut front, mut back) = ([0, 0], [0, 0]);
        front[buffer(image)] = bytes(image);
        let mut between = 0;
        for op in ops {
            let before = image;
            image = match op.output(Some(image)) {
                Ok(output) => TensorType {
                    // A shape that draws decide: no turned image has more pixels.
                    shape: output.shape.or_else(|| turned(before)),
                    ..output
                },
                Err(_) => break,
            };
            if pixels(image) > MAX_PIXELS {
                break;
            }
            let place = buffer(image);
            if is_in_place(op) {
                front[place] = front[place].max(bytes(image));
            } else {
                back[place] = back[place].max(bytes(image));
                (front, back) = (back, front);
                between = between.max(resized_in_width(op, before, image));
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

/// Which of an image's buffers holds elements of its type: kernels compute on bytes and on single floats.
fn buffer(image: TensorType) -> usize {
    usize::from(image.dtype.is_float())
}

/// Bytes of an image while kernels run.
fn bytes(image: TensorType) -> u64 {
    let element = if image.dtype.is_float() { 4 } else { 1 };
    pixels(image)
        .saturating_mul(image.channels as u64)
        .saturating_mul(element)
}

/// A shape of as many pixels as the largest turned image has: half of the square over both sides.
fn turned(image: TensorType) -> Option<(usize, usize)> {
    let (height, width) = image.shape?;
    let side = height.saturating_add(width);
    Some((side, side.div_ceil(2)))
}

/// Whether a function changes the pixels where they are.
const fn is_in_place(op: &ImageOp) -> bool {
    matches!(
        op,
        ImageOp::FlipHorizontal
            | ImageOp::FlipVertical
            | ImageOp::RandomFlipHorizontal { .. }
            | ImageOp::RandomFlipVertical { .. }
            | ImageOp::ColorJitter { .. }
            | ImageOp::GaussianBlur { .. }
            | ImageOp::Solarize { .. }
            | ImageOp::Posterize { .. }
            | ImageOp::RandomErasing { .. }
            | ImageOp::ToFloat { .. }
            | ImageOp::Normalize { .. }
    )
}

/// Bytes of the image between the two passes of a resize.
fn resized_in_width(op: &ImageOp, before: TensorType, after: TensorType) -> u64 {
    let resizes = matches!(
        op,
        ImageOp::Resize { .. } | ImageOp::ResizeShortest { .. } | ImageOp::RandomResizedCrop { .. }
    );
    match (before.shape, after.shape) {
        (Some((height, _)), Some((_, width))) if resizes => bytes(TensorType {
            shape: Some((height, width)),
            ..after
        }),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::op::{Filter, Mode};
    use crate::tensor::Dtype;

    const SIDE: usize = 10_000;

    fn of(ops: &[ImageOp]) -> Footprint {
        let header = Header {
            height: SIDE,
            width: SIDE,
            decoding: 400_000_000,
        };
        let decoded = ImageOp::Decode(Mode::Rgb).output(None).unwrap();
        Footprint::of(&header, decoded, ops.iter())
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
        let size = (100, 200);
        let resize = || ImageOp::Resize {
            size,
            filter: Filter::Bilinear,
        };
        let small = of(&[resize()]);
        assert_eq!(small.result, 60_000);
        // Decoding takes more than what follows.
        assert_eq!(small.peak, 400_000_000);
        let to_float = || ImageOp::ToFloat { dtype: Dtype::F32 };
        let floats = of(&[to_float(), resize()]);
        assert_eq!(floats.result, 240_000);
        let between = (SIDE * 200 * 3 * 4) as u64;
        assert_eq!(floats.peak, 5 * pixels + between + 2 * 240_000);
        assert!(!small.is_small());
    }
}
