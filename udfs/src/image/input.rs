//! Reads the image column of a call: encoded bytes, or tensors of fixed or variable shape.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, FixedSizeListArray, LargeBinaryArray,
    ListArray,
};
use arrow::datatypes::{DataType, Field, Float16Type, Float32Type, Int32Type, UInt8Type};
use datafusion::common::{Result, internal_err, plan_err};

use super::codec::{self, DecodeRequest};
use super::pixels::{MAX_PIXELS, PixelShape, Pixels};
use super::scratch::Scratch;
use crate::tensor::{Dtype, ImageLayout, TensorType};

/// The kind of an image argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ImageKind {
    /// The bytes of an encoded file.
    Encoded,
    /// Decoded pixels of this type.
    Image(TensorType),
}

impl ImageKind {
    /// Returns the type of the pixels; `None` for encoded bytes.
    pub(crate) const fn tensor(self) -> Option<TensorType> {
        match self {
            Self::Encoded => None,
            Self::Image(tensor) => Some(tensor),
        }
    }

    /// Returns the kind of a field. The error, if `function` does not accept the field, says what
    /// to do.
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

/// An image column that any thread can read by row.
#[derive(Debug)]
pub(crate) enum Images<'a> {
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    Fixed(&'a FixedSizeListArray, PixelShape),
    Variable {
        column: &'a dyn Array,
        data: &'a ListArray,
        sizes: &'a [i32],
        tensor: TensorType,
    },
}

impl<'a> Images<'a> {
    /// Opens `column` as images of `kind`. Fails with an internal error if the column has another
    /// type.
    pub(crate) fn new(column: &'a ArrayRef, kind: ImageKind) -> Result<Self> {
        let found = column.data_type();
        match (kind, found) {
            (ImageKind::Encoded, DataType::Binary) => Ok(Self::Binary(column.as_binary())),
            (ImageKind::Encoded, DataType::LargeBinary) => {
                Ok(Self::LargeBinary(column.as_binary()))
            }
            (ImageKind::Encoded, DataType::BinaryView) => {
                Ok(Self::BinaryView(column.as_binary_view()))
            }
            (ImageKind::Image(tensor), _) if *found == tensor.data_type() => match tensor.shape {
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
            _ => internal_err!("an image column has type {found}, but {kind:?} was planned"),
        }
    }

    /// True if the row has no image.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Binary(column) => column.is_null(row),
            Self::LargeBinary(column) => column.is_null(row),
            Self::BinaryView(column) => column.is_null(row),
            Self::Fixed(column, _) => column.is_null(row),
            Self::Variable { column, .. } => column.is_null(row),
        }
    }

    /// Returns the encoded bytes of a row; empty if the column holds pixels.
    pub(crate) fn bytes(&self, row: usize) -> &'a [u8] {
        match self {
            Self::Binary(column) => column.value(row),
            Self::LargeBinary(column) => column.value(row),
            Self::BinaryView(column) => column.value(row),
            Self::Fixed(..) | Self::Variable { .. } => &[],
        }
    }

    /// Size of a row's encoded file, in bytes; 0 if the column holds pixels, or the row has no
    /// image.
    pub(crate) fn size(&self, row: usize) -> usize {
        self.bytes(row).len()
    }

    /// Returns the number of pixels of a row's image; `None` if the row has no image, or a broken one.
    pub(crate) fn pixels(&self, row: usize) -> Option<usize> {
        if self.is_null(row) {
            return None;
        }
        match self {
            Self::Fixed(_, shape) => Some(shape.height * shape.width),
            Self::Variable { sizes, tensor, .. } => {
                let shape = variable_shape(tensor, &sizes[row * 3..row * 3 + 3]).ok()?;
                Some(shape.height * shape.width)
            }
            _ => {
                let header = codec::header(self.bytes(row)).ok()?;
                Some(header.height * header.width)
            }
        }
    }

    /// Loads the row's pixels into `scratch.front`. If the column is encoded, `request` is of the row's
    /// [bytes](Self::bytes). An `Err` is an error of the row.
    pub(crate) fn load(
        &self,
        row: usize,
        request: &DecodeRequest<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        scratch.window = None;
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
                        "expected {expected} elements for the shape of the image, found {n}"
                    ));
                }
                copy(&**data.values(), start as usize, shape, &mut scratch.front)
            }
            _ => codec::decode(request, scratch),
        }
    }
}

const fn shape_of(tensor: &TensorType, (height, width): (usize, usize)) -> PixelShape {
    let TensorType {
        dtype,
        channels,
        layout,
        ..
    } = *tensor;
    PixelShape {
        height,
        width,
        channels,
        dtype,
        layout,
    }
}

fn variable_shape(tensor: &TensorType, sizes: &[i32]) -> Result<PixelShape, String> {
    let (h, w, c) = match (tensor.layout, sizes) {
        (ImageLayout::Hwc, &[h, w, c]) | (ImageLayout::Chw, &[c, h, w]) => (h, w, c),
        _ => return Err("the image does not have three dimensions".to_owned()),
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

fn copy(
    values: &dyn Array,
    start: usize,
    shape: PixelShape,
    target: &mut Pixels,
) -> Result<(), String> {
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
