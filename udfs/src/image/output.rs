//! Writing images into their final column, the last operators of a program fused in.
//!
//! Flips, `to_float`, `normalize` and `to_chw` at the end of a program over bytes need no pass of
//! their own: each byte goes through a table of 256 entries a channel to its final place. The table
//! is made by the kernels themselves, so the result is the same to the bit.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, FixedSizeListArray, Int32Array, ListArray, PrimitiveArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Float16Type, Float32Type, UInt8Type};
use datafusion::common::{Result, internal_err};
use half::f16;

use super::kernel::convert;
use super::op::ImageOp;
use super::pixels::{Pixels, Sample, Shape};
use crate::recycle::{Recycled, lend};
use crate::tensor::{Dtype, Layout, TensorType, variable_fields};

/// An element of a finished column.
pub(crate) trait Element: Recycled {
    /// Its Arrow type.
    type Arrow: ArrowPrimitiveType<Native = Self>;
    /// The element of a byte image's byte.
    fn of_byte(value: u8) -> Self;
    /// The element of a float image's number, already rounded to its precision.
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

/// What remains of a program when a row's bytes are written out.
#[derive(Debug)]
pub(crate) struct Tail<E> {
    /// A table a channel; `None` where elements stay as they are.
    tables: Option<Vec<[E; 256]>>,
    /// Whether planes are written.
    planes: bool,
}

/// Whether writing out can do an operator at the end of a program.
pub(super) const fn is_written_out(op: &ImageOp) -> bool {
    matches!(
        op,
        ImageOp::ToChw
            | ImageOp::FlipHorizontal
            | ImageOp::RandomFlipHorizontal { .. }
            | ImageOp::ToFloat { .. }
            | ImageOp::Normalize { .. }
    )
}

/// Number of operators at the end of `ops` that writing out can do, given the type before each.
pub(crate) fn tail_length(ops: &[(&ImageOp, TensorType)]) -> usize {
    let mut length = 0;
    let mut best = 0;
    for (op, input) in ops.iter().rev() {
        let fits = match op {
            ImageOp::ToChw => length == 0,
            op => is_written_out(op) && input.layout == Layout::Hwc,
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

impl<E: Element> Tail<E> {
    /// The tail of these operators (flips aside) over byte images of `channels`.
    pub(crate) fn new(ops: &[&ImageOp], channels: usize) -> Self {
        let mut ramp = Pixels::default();
        let shape = Shape {
            height: 1,
            width: 256,
            channels,
            dtype: Dtype::U8,
            layout: Layout::Hwc,
        };
        ramp.reshape(shape);
        for (value, pixel) in ramp.u8s.chunks_exact_mut(channels).enumerate() {
            pixel.fill(value as u8);
        }
        let mut changed = false;
        for op in ops {
            match op {
                ImageOp::ToFloat { dtype } => convert::to_float(&mut ramp, *dtype),
                ImageOp::Normalize { mean, std } => convert::normalize(&mut ramp, mean, std),
                _ => continue,
            }
            changed = true;
        }
        let tables = changed.then(|| {
            let mut tables = vec![[E::default(); 256]; channels];
            for (value, pixel) in ramp.f32s.chunks_exact(channels).enumerate() {
                for (table, element) in tables.iter_mut().zip(pixel) {
                    table[value] = E::of_real(*element);
                }
            }
            tables
        });
        Self {
            tables,
            planes: ops.iter().any(|op| matches!(op, ImageOp::ToChw)),
        }
    }

    /// Writes an image, mirrored if `flip`, to `out`, which has room for exactly it.
    pub(crate) fn write(&self, pixels: &Pixels, flip: bool, out: &mut [E]) {
        let Shape {
            width,
            channels,
            dtype,
            ..
        } = pixels.shape;
        if pixels.shape.len() == 0 {
            return;
        }
        if dtype.is_float() {
            // No tail was split off: the pixels are final.
            for (out, value) in out.iter_mut().zip(f32::of(pixels)) {
                *out = E::of_real(*value);
            }
            return;
        }
        let bytes = u8::of(pixels);
        let stride = width * channels;
        if self.planes {
            let area = bytes.len() / channels;
            for (c, plane) in out.chunks_exact_mut(area).enumerate() {
                for (row, out) in bytes
                    .chunks_exact(stride)
                    .zip(plane.chunks_exact_mut(width))
                {
                    let input = row.chunks_exact(channels).map(|p| p[c]);
                    let table = self.tables.as_ref().map(|tables| &tables[c]);
                    match (table, flip) {
                        (Some(t), true) => fill(out.iter_mut().rev(), input, |v| t[v as usize]),
                        (Some(t), false) => fill(out.iter_mut(), input, |v| t[v as usize]),
                        (None, true) => fill(out.iter_mut().rev(), input, E::of_byte),
                        (None, false) => fill(out.iter_mut(), input, E::of_byte),
                    }
                }
            }
            return;
        }
        for (row, out) in bytes.chunks_exact(stride).zip(out.chunks_exact_mut(stride)) {
            match (self.tables.as_deref(), channels) {
                (Some([r, g, b]), 3) => {
                    let map = |p: &[u8], o: &mut [E]| {
                        o[0] = r[p[0] as usize];
                        o[1] = g[p[1] as usize];
                        o[2] = b[p[2] as usize];
                    };
                    interleaved(row, out, flip, map);
                }
                (Some([gray]), _) => {
                    let map = |p: &[u8], o: &mut [E]| o[0] = gray[p[0] as usize];
                    if flip {
                        let pairs = row.chunks_exact(1).zip(out.chunks_exact_mut(1).rev());
                        pairs.for_each(|(p, o)| map(p, o));
                    } else {
                        row.chunks_exact(1)
                            .zip(out.chunks_exact_mut(1))
                            .for_each(|(p, o)| map(p, o));
                    }
                }
                _ => {
                    let map = |p: &[u8], o: &mut [E]| {
                        for (o, p) in o.iter_mut().zip(p) {
                            *o = E::of_byte(*p);
                        }
                    };
                    if !flip {
                        map(row, out);
                    } else if channels == 3 {
                        interleaved(row, out, true, map);
                    } else {
                        fill(out.iter_mut().rev(), row.iter().copied(), E::of_byte);
                    }
                }
            }
        }
    }
}

#[inline]
fn fill<'a, E: 'a>(
    out: impl Iterator<Item = &'a mut E>,
    input: impl Iterator<Item = u8>,
    map: impl Fn(u8) -> E,
) {
    for (out, value) in out.zip(input) {
        *out = map(value);
    }
}

/// Maps the pixels of a row of three channels, in mirrored order if `flip`.
#[inline]
fn interleaved<E>(row: &[u8], out: &mut [E], flip: bool, map: impl Fn(&[u8], &mut [E])) {
    if flip {
        for (p, o) in row.chunks_exact(3).zip(out.chunks_exact_mut(3).rev()) {
            map(p, o);
        }
    } else {
        for (p, o) in row.chunks_exact(3).zip(out.chunks_exact_mut(3)) {
            map(p, o);
        }
    }
}

fn item<E: Element>() -> Arc<Field> {
    Arc::new(Field::new_list_field(E::Arrow::DATA_TYPE, false))
}

/// A column of images of one shape, from their elements laid end to end.
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

/// A column of images of different shapes: `None` where a row has none.
pub(crate) fn variable_column<E: Element>(
    rows: Vec<Option<(Vec<E>, Shape)>>,
    tensor: &TensorType,
) -> Result<ArrayRef> {
    let total: usize = rows
        .iter()
        .flatten()
        .map(|(elements, _)| elements.len())
        .sum();
    if i32::try_from(total).is_err() {
        return internal_err!("{} images have {total} elements together", rows.len());
    }
    let mut elements = Vec::with_capacity(total);
    let mut lengths = Vec::with_capacity(rows.len());
    let mut sizes = Vec::with_capacity(rows.len() * 3);
    let mut valid = Vec::with_capacity(rows.len());
    for row in rows {
        valid.push(row.is_some());
        let (row, shape) = match row {
            Some((row, shape)) => (row, Some(shape)),
            None => (Vec::new(), None),
        };
        let (h, w) = shape.map_or((0, 0), |s| (s.height as i32, s.width as i32));
        let c = tensor.channels as i32;
        sizes.extend(match tensor.layout {
            Layout::Hwc => [h, w, c],
            Layout::Chw => [c, h, w],
        });
        lengths.push(row.len());
        elements.extend_from_slice(&row);
    }
    let values = PrimitiveArray::<E::Arrow>::new(ScalarBuffer::from(elements), None);
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
