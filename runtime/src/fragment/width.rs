//! The width of rows: what a row of a schema takes in memory, as far as its types tell.

use arrow::datatypes::{Field, Schema};
use forebay_udfs::tensor::TensorType;
use forebay_udfs::width::{DECODED_PER_ENCODED, fixed_bytes};

/// What the types of a schema say about the bytes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowWidth {
    /// Bytes of the columns whose types fix them.
    pub fixed: u64,
    /// Whether there are texts, bytes or lists, which are about as large as they are stored.
    pub variable: bool,
    /// Whether there are tensors, whose functions run in parallel over the rows of a segment.
    pub tensors: bool,
    /// Whether there are tensors of varying shape, which are larger than what they are decoded from.
    pub ragged: bool,
}

impl RowWidth {
    /// The width of a row of `schema`.
    pub fn of(schema: &Schema) -> Self {
        let mut width = Self {
            fixed: 0,
            variable: false,
            tensors: false,
            ragged: false,
        };
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

    /// Bytes of a row, about, where a stored row has `stored` bytes.
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
    fn a_text_beside_a_tensor_adds_what_is_stored_and_no_more() {
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
