//! The width of rows: an estimate of a row's memory, from the types of its columns.

use arrow::datatypes::{Field, Schema};
use forebay_udfs::tensor::TensorType;
use forebay_udfs::width::{DECODED_PER_ENCODED, fixed_bytes};

/// The width of a schema's rows, as far as the column types determine it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowWidth {
    /// Total size per row of the columns with a fixed-size type, in bytes.
    pub fixed: u64,
    /// True if some columns hold strings, binary values or lists. All these columns together are
    /// estimated to be as large as the stored row.
    pub variable: bool,
    /// True if some columns hold tensors. Functions that compute tensors run in parallel over the
    /// rows of a segment.
    pub tensors: bool,
    /// True if some columns hold tensors of varying shape, which are larger than the encoded data
    /// from which they are decoded.
    pub ragged: bool,
}

impl RowWidth {
    /// Returns the width of rows of `schema`.
    pub fn of(schema: &Schema) -> Self {
        let mut width = Self::default();
        for field in schema.fields() {
            let tensor = is_tensor(field);
            width.tensors |= tensor;
            match fixed_bytes(field.data_type()) {
                Some(bytes) => width.fixed = width.fixed.saturating_add(bytes),
                None if tensor => width.ragged = true,
                None => width.variable = true,
            }
        }
        width
    }

    /// Estimates the size in bytes of a row computed from a stored row of `stored` bytes.
    pub fn estimate(&self, stored: u64) -> u64 {
        let variable = if self.variable { stored } else { 0 };
        let ragged = if self.ragged {
            stored.saturating_mul(DECODED_PER_ENCODED)
        } else {
            0
        };
        self.fixed.saturating_add(variable).saturating_add(ragged)
    }
}

fn is_tensor(field: &Field) -> bool {
    !matches!(TensorType::from_field(field), Ok(None))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn a_string_beside_a_tensor_adds_only_the_stored_size() {
        let pixels = DataType::new_fixed_size_list(DataType::Float32, 3 * 224 * 224, false);
        let schema = Schema::new(vec![
            Field::new("image", pixels, false),
            Field::new("label", DataType::Int32, false),
            Field::new("path", DataType::Utf8, false),
        ]);
        let width = RowWidth::of(&schema);
        assert_eq!(width.fixed, 3 * 224 * 224 * 4 + 4);
        assert_eq!(width.estimate(100_000), width.fixed + 100_000);
        assert!(!width.ragged);
    }
}
