//! The image columns of a batch.

use std::io::Cursor;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use image::{ImageReader, Limits, RgbImage};

use super::tensor::TensorColumn;

/// Maximum memory, in bytes, that decoding one image may take; an image that needs more is not
/// shown.
const MAX_DECODED_BYTES: u64 = 512 << 20;

/// A column that can be shown as images.
#[derive(Debug)]
pub(super) enum ImageColumn {
    /// Decoded images, as tensors.
    Tensor(TensorColumn),
    /// Encoded images, as bytes.
    Encoded(ArrayRef),
}

impl ImageColumn {
    /// Wraps a column of images; `None` if the column does not hold images.
    pub(super) fn try_new(field: &Field, column: &ArrayRef) -> Result<Option<Self>, ArrowError> {
        if matches!(
            column.data_type(),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView
        ) {
            let encoded = (0..column.len())
                .filter_map(|row| bytes(column, row))
                .any(|bytes| image::guess_format(bytes).is_ok());
            return Ok(encoded.then(|| Self::Encoded(ArrayRef::clone(column))));
        }
        Ok(TensorColumn::try_new(field, column)?.map(Self::Tensor))
    }

    /// Returns the image of a row; `None` if the value is null or cannot be decoded.
    pub(super) fn image(&self, row: usize) -> Option<RgbImage> {
        match self {
            Self::Tensor(column) => column.image(row),
            Self::Encoded(column) => decode(bytes(column, row)?),
        }
    }
}

fn bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => Some(column.as_binary_view().value(row)),
        _ => None,
    }
}

fn decode(bytes: &[u8]) -> Option<RgbImage> {
    let mut reader = ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .ok()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    limits.max_image_width = Some(1 << 16);
    limits.max_image_height = Some(1 << 16);
    reader.limits(limits);
    Some(reader.decode().ok()?.into_rgb8())
}
