//! Sizes of values in memory, as far as the data type determines the size.

use arrow::datatypes::DataType;

/// Approximate size of a decoded image divided by the size of its file, for JPEG files of usual
/// quality.
pub const DECODED_PER_ENCODED: u64 = 12;

/// Size, in bytes, of a value of type `data_type`; `None` if values of this type differ in size.
///
/// ```
/// use arrow::datatypes::DataType;
/// use forebay_udfs::width::fixed_bytes;
///
/// let pixels = DataType::new_fixed_size_list(DataType::Float32, 3 * 224 * 224, false);
/// assert_eq!(fixed_bytes(&pixels), Some(3 * 224 * 224 * 4));
/// assert_eq!(fixed_bytes(&DataType::Utf8), None);
/// ```
pub fn fixed_bytes(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::FixedSizeList(item, n) => {
            Some(fixed_bytes(item.data_type())?.saturating_mul(*n as u64))
        }
        DataType::FixedSizeBinary(n) => Some(*n as u64),
        DataType::Struct(fields) => fields.iter().try_fold(0_u64, |sum, field| {
            Some(sum.saturating_add(fixed_bytes(field.data_type())?))
        }),
        other => other.primitive_width().map(|w| w as u64),
    }
}
