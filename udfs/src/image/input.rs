//! Reading the image column of a call: encoded bytes, or tensors of either kind.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, FixedSizeListArray, LargeBinaryArray,
    ListArray,
};
use arrow::datatypes::{DataType, Field, Float16Type, Float32Type, Int32Type, UInt8Type};
use datafusion::common::{Result, internal_err, plan_err};

use super::codec::{self, MAX_PIXELS};
use super::op::Mode;
use super::pixels::{Pixels, Scratch, Shape};
use crate::tensor::{Dtype, Layout, TensorType};

/// What an image argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Bytes of a file.
    Encoded,
    /// Pixels.
    Image(TensorType),
}

impl Kind {
    /// The kind of a field; errors where `function` can take neither, saying what to do.
    pub(crate) fn of(field: &Field, function: &str, decodes: bool) -> Result<Self> {
        match TensorType::from_field(field) {
            Ok(Some(tensor)) if decodes => {
                return plan_err!("{function}: expected encoded bytes, found the image {tensor}");
            }
            Ok(Some(tensor)) => return Ok(Self::Image(tensor)),
            Ok(None) => {}
            Err(error) => return Err(error.context(function.to_owned())),
        }
        let found = field.data_type();
        let encoded = is_binary(found);
        match (decodes, encoded) {
            (true, true) => Ok(Self::Encoded),
            (true, false) => {
                plan_err!("{function}: expected encoded bytes (Binary), found {found}")
            }
            (false, true) => plan_err!(
                "{function}: expected an image, found {found}; decode it first: {function}(decode_image(..))"
            ),
            (false, false) => {
                plan_err!("{function}: expected an image (decode_image gives one), found {found}")
            }
        }
    }
}

const fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

/// An image column, ready to be read by row from any thread.
#[derive(Debug)]
pub(crate) enum Images<'a> {
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    Fixed(&'a FixedSizeListArray, Shape),
    Variable {
        column: &'a dyn Array,
        data: &'a ListArray,
        sizes: &'a [i32],
        tensor: TensorType,
    },
}

impl<'a> Images<'a> {
    /// The column as `kind`. A mismatch is a broken invariant.
    pub(crate) fn new(column: &'a ArrayRef, kind: Kind) -> Result<Self> {
        let found = column.data_type();
        match (kind, found) {
            (Kind::Encoded, DataType::Binary) => Ok(Self::Binary(column.as_binary())),
            (Kind::Encoded, DataType::LargeBinary) => Ok(Self::LargeBinary(column.as_binary())),
            (Kind::Encoded, DataType::BinaryView) => Ok(Self::BinaryView(column.as_binary_view())),
            (Kind::Image(tensor), _) if *found == tensor.data_type() => match tensor.shape {
                Some(size) => Ok(Self::Fixed(
                    column.as_fixed_size_list(),
                    shape_of(&tensor, size),
                )),
                None => {
                    let fields = column.as_struct();
                    let data = fields.column(0).as_list::<i32>();
                    let sizes = fields.column(1).as_fixed_size_list();
                    let offset = sizes.value_offset(0) as usize;
                    let values = sizes.values().as_primitive::<Int32Type>().values();
                    let sizes = &values[offset..offset + sizes.len() * 3];
                    Ok(Self::Variable {
                        column,
                        data,
                        sizes,
                        tensor,
                    })
                }
            },
            _ => internal_err!("an image column has type {found}, planned was {kind:?}"),
        }
    }

    /// Whether the row has no image.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Binary(column) => column.is_null(row),
            Self::LargeBinary(column) => column.is_null(row),
            Self::BinaryView(column) => column.is_null(row),
            Self::Fixed(column, _) => column.is_null(row),
            Self::Variable { column, .. } => column.is_null(row),
        }
    }

    /// The bytes of a row; empty where the column holds pixels.
    pub(crate) fn bytes(&self, row: usize) -> &'a [u8] {
        match self {
            Self::Binary(column) => column.value(row),
            Self::LargeBinary(column) => column.value(row),
            Self::BinaryView(column) => column.value(row),
            Self::Fixed(..) | Self::Variable { .. } => &[],
        }
    }

    /// Bytes of a row's file; 0 where the column holds pixels, or the row no image.
    pub(crate) fn size(&self, row: usize) -> usize {
        self.bytes(row).len()
    }

    /// Brings the row's pixels into `scratch.front`, decoding them in `mode` where encoded. Errors
    /// are the row's.
    pub(crate) fn load(&self, row: usize, mode: Mode, scratch: &mut Scratch) -> Result<(), String> {
        match self {
            Self::Fixed(column, shape) => {
                let start = column.value_offset(row) as usize;
                copy(&**column.values(), start, *shape, &mut scratch.front)
            }
            Self::Variable {
                data,
                sizes,
                tensor,
                ..
            } => {
                let shape = variable_shape(tensor, &sizes[row * 3..row * 3 + 3])?;
                let (start, end) = (data.value_offsets()[row], data.value_offsets()[row + 1]);
                if (end - start) as usize != shape.len() {
                    let (n, expected) = (end - start, shape.len());
                    return Err(format!(
                        "the image has {n} elements, its shape says {expected}"
                    ));
                }
                copy(&**data.values(), start as usize, shape, &mut scratch.front)
            }
            _ => codec::decode(self.bytes(row), mode, scratch),
        }
    }
}

const fn shape_of(tensor: &TensorType, (height, width): (usize, usize)) -> Shape {
    let TensorType {
        dtype,
        channels,
        layout,
        ..
    } = *tensor;
    Shape {
        height,
        width,
        channels,
        dtype,
        layout,
    }
}

fn variable_shape(tensor: &TensorType, sizes: &[i32]) -> Result<Shape, String> {
    let (h, w, c) = match (tensor.layout, sizes) {
        (Layout::Hwc, &[h, w, c]) | (Layout::Chw, &[c, h, w]) => (h, w, c),
        _ => return Err("the image has no three dimensions".to_owned()),
    };
    let bad = || format!("the image has an impossible shape {sizes:?}");
    let (height, width) = usize::try_from(h)
        .ok()
        .zip(usize::try_from(w).ok())
        .ok_or_else(bad)?;
    if height == 0 || width == 0 {
        return Err(bad());
    }
    if usize::try_from(c) != Ok(tensor.channels) || (height as u64 * width as u64) > MAX_PIXELS {
        return Err(bad());
    }
    Ok(shape_of(tensor, (height, width)))
}

fn copy(values: &dyn Array, start: usize, shape: Shape, target: &mut Pixels) -> Result<(), String> {
    target.reshape(shape);
    let range = start..start + shape.len();
    match shape.dtype {
        Dtype::U8 => {
            let values = values.as_primitive::<UInt8Type>().values();
            target.u8s.copy_from_slice(&values[range]);
        }
        Dtype::F32 => {
            let values = values.as_primitive::<Float32Type>().values();
            target.f32s.copy_from_slice(&values[range]);
        }
        Dtype::F16 => {
            let values = values.as_primitive::<Float16Type>().values();
            for (out, value) in target.f32s.iter_mut().zip(&values[range]) {
                *out = value.to_f32();
            }
        }
    }
    Ok(())
}
