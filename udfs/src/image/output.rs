//! Writes images into their final column, and applies the last operators of a program while
//! writing.
//!
//! Flips, `to_float`, `normalize` and `to_chw` at the end of a program over bytes need no separate
//! pass over the pixels: each byte is mapped by a table of 256 entries per channel and stored at
//! its final position. The table is computed by the kernels themselves, so the result is the same
//! to the bit.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, FixedSizeListArray, Int32Array, ListArray, PrimitiveArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float16Type, Float32Type, UInt8Type};
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use half::f16;

use super::op::{Finish, ImageOp};
use super::pixels::{PixelSample, PixelShape, Pixels};
use super::scratch::Scratch;
use super::streaming::StreamingCopy;
use crate::buffer_pool::{Recycled, lend};
use crate::draw::Draws;
use crate::tensor::{Dtype, ImageLayout, TensorType, variable_fields};

/// The element type of a finished column.
pub(crate) trait Element: Recycled {
    /// The corresponding Arrow type.
    type Arrow: ArrowPrimitiveType<Native = Self>;
    /// Converts a sample of a byte image.
    fn of_byte(value: u8) -> Self;
    /// Converts a sample of a float image, which is already rounded to this type's precision.
    fn of_real(value: f32) -> Self;
}

impl Element for u8 {
    type Arrow = UInt8Type;

    fn of_byte(value: u8) -> Self {
        value
    }

    fn of_real(value: f32) -> Self {
        value as Self
    }
}

impl Element for f32 {
    type Arrow = Float32Type;

    fn of_byte(value: u8) -> Self {
        Self::from(value)
    }

    fn of_real(value: f32) -> Self {
        value
    }
}

impl Element for f16 {
    type Arrow = Float16Type;

    fn of_byte(value: u8) -> Self {
        Self::from(value)
    }

    fn of_real(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Applies the last operators of a program, except flips, while a row's pixels are written.
#[derive(Debug)]
pub(crate) struct ColumnWriter<E> {
    /// One table per channel, which maps bytes to elements; `None` if no operator changes the
    /// samples.
    tables: Option<Vec<[E; 256]>>,
    /// True if the result is stored as planes.
    planes: bool,
}

/// Returns the number of operators at the end of `ops` that can be applied while writing, given the
/// type of the image before each operator.
pub(crate) fn tail_length(ops: &[(&dyn ImageOp, TensorType)]) -> usize {
    let mut length = 0;
    let mut best = 0;
    for (op, input) in ops.iter().rev() {
        let fits = match op.finish() {
            Some(Finish::Planes) => length == 0,
            Some(Finish::Table | Finish::Mirror(_)) => input.layout == ImageLayout::Hwc,
            None => false,
        };
        if !fits {
            break;
        }
        length += 1;
        if input.dtype == Dtype::U8 {
            best = length;
        }
    }
    best
}

impl<E: Element> ColumnWriter<E> {
    /// Creates the writer that applies `ops` (except flips) to byte images of `channels` channels.
    pub(crate) fn new(ops: &[&dyn ImageOp], channels: usize) -> Result<Self> {
        let mut scratch = Scratch::default();
        let ramp = &mut scratch.front;
        let shape = PixelShape {
            height: 1,
            width: 256,
            channels,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
        };
        ramp.reshape(shape);
        for (value, pixel) in ramp.u8s.chunks_exact_mut(channels).enumerate() {
            pixel.fill(value as u8);
        }
        let mut changed = false;
        for op in ops {
            if op.finish() == Some(Finish::Table) {
                // A pointwise kernel takes no draw and cannot fail.
                op.apply(&mut scratch, &mut Draws::new(0, 0, 0, 0))
                    .map_err(|cause| internal_datafusion_err!("{op}: {cause}"))?;
                changed = true;
            }
        }
        let tables = changed.then(|| {
            let mut tables = vec![[E::default(); 256]; channels];
            for (value, pixel) in scratch.front.f32s.chunks_exact(channels).enumerate() {
                for (table, element) in tables.iter_mut().zip(pixel) {
                    table[value] = E::of_real(*element);
                }
            }
            tables
        });
        Ok(Self {
            tables,
            planes: ops.iter().any(|op| op.finish() == Some(Finish::Planes)),
        })
    }

    /// Writes an image, mirrored if `flip`, to `out`, which must have exactly the image's number of
    /// elements.
    pub(crate) fn write(&self, pixels: &Pixels, flip: bool, out: &mut [E]) {
        let PixelShape {
            width,
            channels,
            dtype,
            ..
        } = pixels.shape;
        if pixels.shape.len() == 0 {
            return;
        }
        if dtype.is_float() {
            // Without tables, no operator is left to apply: the pixels are final.
            for (out, value) in out.iter_mut().zip(f32::of(pixels)) {
                *out = E::of_real(*value);
            }
            return;
        }
        let bytes = u8::of(pixels);
        if self.tables.is_none() && !flip && !self.planes {
            for (out, byte) in out.iter_mut().zip(bytes) {
                *out = E::of_byte(*byte);
            }
            return;
        }
        let stride = width * channels;
        let copy = StreamingCopy::new(out);
        if self.planes {
            let area = bytes.len() / channels;
            for (c, plane) in out.chunks_exact_mut(area).enumerate() {
                let table = self.tables.as_ref().map(|tables| &tables[c]);
                for (row, out) in bytes
                    .chunks_exact(stride)
                    .zip(plane.chunks_exact_mut(width))
                {
                    match (table, channels) {
                        (Some(t), 3) => {
                            put(&copy, row, out, flip, |p: &[u8; 3], [o]| {
                                *o = t[p[c] as usize]
                            });
                        }
                        (None, 3) => {
                            put(&copy, row, out, flip, |p: &[u8; 3], [o]| {
                                *o = E::of_byte(p[c])
                            });
                        }
                        (Some(t), _) => put(&copy, row, out, flip, |[p], [o]| *o = t[*p as usize]),
                        (None, _) => put(&copy, row, out, flip, |[p], [o]| *o = E::of_byte(*p)),
                    }
                }
            }
            return;
        }
        for (row, out) in bytes.chunks_exact(stride).zip(out.chunks_exact_mut(stride)) {
            match (self.tables.as_deref(), channels) {
                (Some([r, g, b]), 3) => {
                    put(&copy, row, out, flip, |p: &[u8; 3], o: &mut [E; 3]| {
                        *o = [r[p[0] as usize], g[p[1] as usize], b[p[2] as usize]];
                    });
                }
                (Some([gray]), _) => put(&copy, row, out, flip, |[p], [o]| *o = gray[*p as usize]),
                (_, 3) => {
                    put(&copy, row, out, flip, |p: &[u8; 3], o: &mut [E; 3]| {
                        *o = p.map(E::of_byte)
                    });
                }
                _ => put(&copy, row, out, flip, |[p], [o]| *o = E::of_byte(*p)),
            }
        }
    }
}

/// Number of pixels that are mapped at a time.
const PIXELS: usize = 64;

/// Maps the pixels of a row, of `S` bytes each, to `C` elements each, and copies them to `out`, in
/// mirrored order if `flip`.
#[inline]
fn put<E: Element, const S: usize, const C: usize>(
    copy: &StreamingCopy,
    row: &[u8],
    out: &mut [E],
    flip: bool,
    map: impl Fn(&[u8; S], &mut [E; C]),
) {
    let (pixels, _) = row.as_chunks::<S>();
    let (out, _) = out.as_chunks_mut::<C>();
    let mut mapped = [[E::default(); C]; PIXELS];
    let mut left = pixels;
    for out in out.chunks_mut(PIXELS) {
        let mapped = &mut mapped[..out.len()];
        if flip {
            let (before, part) = left.split_at(left.len() - out.len());
            left = before;
            for (pixel, out) in part.iter().zip(mapped.iter_mut().rev()) {
                map(pixel, out);
            }
        } else {
            let (part, after) = left.split_at(out.len());
            left = after;
            for (pixel, out) in part.iter().zip(mapped.iter_mut()) {
                map(pixel, out);
            }
        }
        copy.copy(mapped.as_flattened(), out.as_flattened_mut());
    }
}

fn item<E: Element>() -> Arc<Field> {
    Arc::new(Field::new_list_field(E::Arrow::DATA_TYPE, false))
}

/// Creates a column of images of one shape from their concatenated elements; `valid` is false for a
/// row without an image.
pub(crate) fn fixed_column<E: Element>(
    elements: Vec<E>,
    valid: &[bool],
    tensor: &TensorType,
) -> Result<ArrayRef> {
    let DataType::FixedSizeList(_, n) = tensor.data_type() else {
        return internal_err!("{tensor} has no fixed shape");
    };
    let values = PrimitiveArray::<E::Arrow>::new(lend(elements), None);
    let nulls = NullBuffer::from(valid.to_vec());
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(FixedSizeListArray::try_new(
        item::<E>(),
        n,
        Arc::new(values),
        nulls,
    )?))
}

/// Creates a column of images of different shapes, which follow one another in `elements`; a row without
/// an image is `None`.
pub(crate) fn variable_column<E: Element>(
    elements: Vec<E>,
    shapes: &[Option<PixelShape>],
    tensor: &TensorType,
) -> Result<ArrayRef> {
    let lengths: Vec<usize> = { shapes.iter() }
        .map(|shape| shape.map_or(0, |shape| shape.len()))
        .collect();
    let total: usize = lengths.iter().sum();
    if total != elements.len() || i32::try_from(total).is_err() {
        return internal_err!(
            "{} images have {total} elements together, not {}",
            shapes.len(),
            elements.len()
        );
    }
    let mut sizes = Vec::with_capacity(shapes.len() * 3);
    for shape in shapes {
        let (h, w) = shape.map_or((0, 0), |s| (s.height as i32, s.width as i32));
        let c = tensor.channels as i32;
        sizes.extend(match tensor.layout {
            ImageLayout::Hwc => [h, w, c],
            ImageLayout::Chw => [c, h, w],
        });
    }
    let valid: Vec<bool> = shapes.iter().map(Option::is_some).collect();
    let values = PrimitiveArray::<E::Arrow>::new(lend(elements), None);
    let offsets = OffsetBuffer::from_lengths(lengths);
    let data = ListArray::try_new(item::<E>(), offsets, Arc::new(values), None)?;
    let size = Arc::new(Field::new_list_field(DataType::Int32, false));
    let sizes = FixedSizeListArray::try_new(size, 3, Arc::new(Int32Array::from(sizes)), None)?;
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    let fields = variable_fields(item::<E>());
    Ok(Arc::new(StructArray::try_new(
        fields,
        vec![Arc::new(data), Arc::new(sizes)],
        nulls,
    )?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::testing::image_of;

    /// Writes an image, and compares each element with the sample that belongs at its place.
    fn assert_written(pixels: &Pixels, writer: &ColumnWriter<f32>, flip: bool) {
        let PixelShape {
            height,
            width,
            channels,
            ..
        } = pixels.shape;
        let mut out = vec![-1.0; pixels.shape.len()];
        writer.write(pixels, flip, &mut out);
        for y in 0..height {
            for x in 0..width {
                for c in 0..channels {
                    let to_x = if flip { width - 1 - x } else { x };
                    let to = if writer.planes {
                        (c * height + y) * width + to_x
                    } else {
                        (y * width + to_x) * channels + c
                    };
                    let byte = pixels.u8s[(y * width + x) * channels + c];
                    let tables = writer.tables.as_ref();
                    let expected = tables.map_or(f32::from(byte), |t| t[c][usize::from(byte)]);
                    assert_eq!(out[to], expected, "{:?}, row {y}, column {x}", pixels.shape);
                }
            }
        }
    }

    #[test]
    fn each_sample_is_written_to_its_place() {
        // The last two are large. Rows of the last but one are not whole vectors.
        for (height, width) in [(1, 1), (3, 63), (2, 130), (300, 161), (300, 160)] {
            for channels in [1, 3] {
                let pixels = image_of(height, width, channels);
                let table = |c: usize| std::array::from_fn(|v| (1000 * (c + 1) + v) as f32);
                for tables in [None, Some((0..channels).map(table).collect())] {
                    for planes in [false, true] {
                        let tables = tables.clone();
                        let writer = ColumnWriter { tables, planes };
                        assert_written(&pixels, &writer, false);
                        assert_written(&pixels, &writer, true);
                    }
                }
            }
        }
    }
}
