//! The digest of a stream: BLAKE3 over canonical logical values, schema and batch boundaries.
//!
//! Two streams have equal digests if all values, types, column names, tensor shapes and batch boundaries are equal,
//! whatever the arrays' layout in memory (offsets, slices, bytes under nulls).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, not_impl_err};

/// Digest of a stream that depends on the order of rows and on batch boundaries. The default is the
/// digest of the empty stream.
#[derive(Debug, Clone, Default)]
pub struct Digest {
    hasher: blake3::Hasher,
    batches: u64,
}

impl Digest {
    /// Adds the next batch of the stream to the digest.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.batches == 0 {
            self.hasher
                .update(schema_text(batch.schema_ref()).as_bytes());
        }
        self.batches += 1;
        self.hasher.update(&(batch.num_rows() as u64).to_le_bytes());
        batch
            .columns()
            .iter()
            .try_for_each(|column| hash_array(column, &mut self.hasher))
    }

    /// Returns the digest of the batches added so far, as 64 hexadecimal digits.
    pub fn finish(&self) -> String {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.batches.to_le_bytes());
        hasher.finalize().to_hex().to_string()
    }
}

/// Digest of a stream's rows that does not depend on the order of rows or on batch boundaries: the
/// sum, modulo 2^256, of the BLAKE3 hashes of all rows (an additive multiset hash: Bellare and
/// Micciancio, EUROCRYPT 1997).
#[derive(Debug, Clone, Default)]
pub struct RowsDigest {
    schema: Option<String>,
    sum: [u64; 4],
    rows: u64,
}

impl RowsDigest {
    /// Adds the rows of a batch to the digest.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        self.schema
            .get_or_insert_with(|| schema_text(batch.schema_ref()));
        for row in 0..batch.num_rows() {
            let mut hasher = blake3::Hasher::new();
            for column in batch.columns() {
                hash_array(&column.slice(row, 1), &mut hasher)?;
            }
            self.add(hasher.finalize().as_bytes());
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn add(&mut self, hash: &[u8; 32]) {
        let mut carry = false;
        for (limb, bytes) in self.sum.iter_mut().zip(hash.as_chunks::<8>().0) {
            let (sum, over) = limb.overflowing_add(u64::from_le_bytes(*bytes));
            let (sum, over_carry) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, over || over_carry);
        }
    }

    /// Returns the digest of the batches added so far, as 64 hexadecimal digits.
    pub fn finish(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.schema.as_deref().unwrap_or_default().as_bytes());
        for limb in self.sum {
            hasher.update(&limb.to_le_bytes());
        }
        hasher.update(&self.rows.to_le_bytes());
        hasher.finalize().to_hex().to_string()
    }
}

/// Formats the names, types and extension types of the columns. Nullability is left out, because it
/// does not affect the values.
fn schema_text(schema: &Schema) -> String {
    let mut text = String::new();
    for field in schema.fields() {
        let metadata: std::collections::BTreeMap<_, _> = field.metadata().iter().collect();
        text.push_str(&format!(
            "{:?} {} {metadata:?}\n",
            field.name(),
            logical(field.data_type())
        ));
    }
    text
}

/// Formats a type without the details of its memory layout.
fn logical(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8.to_string(),
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary.to_string(),
        DataType::Dictionary(_, values) => logical(values),
        DataType::LargeList(item) | DataType::List(item) => {
            format!("List({})", logical(item.data_type()))
        }
        DataType::FixedSizeList(item, n) => format!("List({}; {n})", logical(item.data_type())),
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|f| format!("{}: {}", f.name(), logical(f.data_type())));
            format!("Struct({})", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn hash_array(array: &ArrayRef, hasher: &mut blake3::Hasher) -> Result<()> {
    if let DataType::Dictionary(_, values) = array.data_type() {
        return hash_array(&cast(array, values)?, hasher);
    }
    hasher.update(&(array.len() as u64).to_le_bytes());
    let nulls = array.logical_nulls().filter(|n| n.null_count() > 0);
    hasher.update(&[u8::from(nulls.is_some())]);
    let mask: Vec<u8> = nulls.iter().flatten().map(u8::from).collect();
    hasher.update(&mask);
    let is_valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
    let mut valid = (0..array.len()).filter(|&row| is_valid(row));
    match array.data_type() {
        DataType::Null => {}
        DataType::Boolean => {
            let values = array.as_boolean();
            let bits: Vec<u8> = (0..array.len())
                .map(|i| u8::from(is_valid(i) && values.value(i)))
                .collect();
            hasher.update(&bits);
        }
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let values = cast(array, &DataType::BinaryView)?;
            let values = values.as_binary_view();
            for value in valid.map(|i| values.value(i)) {
                hasher.update(&(value.len() as u64).to_le_bytes());
                hasher.update(value);
            }
        }
        DataType::FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            let size = lists.value_length() as usize;
            if nulls.is_none() {
                let start = lists.value_offset(0) as usize;
                hash_array(&lists.values().slice(start, size * lists.len()), hasher)?;
            } else {
                valid.try_for_each(|i| hash_array(&lists.value(i), hasher))?;
            }
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            valid.try_for_each(|i| hash_array(&lists.value(i), hasher))?;
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            valid.try_for_each(|i| hash_array(&lists.value(i), hasher))?;
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns();
            if nulls.is_none() {
                return columns.iter().try_for_each(|c| hash_array(c, hasher));
            }
            for row in valid {
                let mut columns = columns.iter();
                columns.try_for_each(|column| hash_array(&column.slice(row, 1), hasher))?;
            }
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            valid.try_for_each(|i| hash_array(&(Arc::new(maps.value(i)) as ArrayRef), hasher))?;
        }
        primitive if let Some(width) = primitive.primitive_width() => {
            let data = array.to_data();
            let all = &data.buffers()[0].as_slice()
                [data.offset() * width..(data.offset() + data.len()) * width];
            if nulls.is_none() {
                hasher.update(all);
            } else {
                for row in valid {
                    hasher.update(&all[row * width..(row + 1) * width]);
                }
            }
        }
        other => return not_impl_err!("digests of columns of type {other}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{FixedSizeListArray, Float32Array, Int32Array, StringArray};
    use arrow::datatypes::{Field, Float32Type};

    use super::*;

    fn batch(labels: &[i32], pixels: &[f32]) -> RecordBatch {
        let lists = pixels
            .chunks(2)
            .map(|p| Some(p.iter().copied().map(Some).collect::<Vec<_>>()));
        let pixels = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists, 2);
        let labels: ArrayRef = Arc::new(Int32Array::from(labels.to_vec()));
        RecordBatch::try_from_iter([("label", labels), ("pixels", Arc::new(pixels))]).unwrap()
    }

    fn digest(batches: &[RecordBatch]) -> String {
        let mut digest = Digest::default();
        batches.iter().for_each(|b| digest.update(b).unwrap());
        digest.finish()
    }

    fn rows_digest(batches: &[RecordBatch]) -> String {
        let mut digest = RowsDigest::default();
        batches.iter().for_each(|b| digest.update(b).unwrap());
        digest.finish()
    }

    #[test]
    fn one_changed_pixel_label_swap_or_boundary_changes_the_digest() {
        let base = batch(&[1, 2, 3], &[0., 1., 2., 3., 4., 5.]);
        let same = digest(std::slice::from_ref(&base));
        assert_eq!(
            same,
            digest(&[batch(&[1, 2, 3], &[0., 1., 2., 3., 4., 5.])])
        );
        let pixel = batch(&[1, 2, 3], &[0., 1., 2., 3.0000002, 4., 5.]);
        let label = batch(&[1, 2, 4], &[0., 1., 2., 3., 4., 5.]);
        let swap = batch(&[2, 1, 3], &[2., 3., 0., 1., 4., 5.]);
        for other in [&pixel, &label, &swap] {
            assert_ne!(same, digest(std::slice::from_ref(other)));
        }
        let cut = [base.slice(0, 1), base.slice(1, 2)];
        assert_ne!(same, digest(&cut));
        // The digest of rows ignores order and boundaries, but not values.
        let rows = rows_digest(std::slice::from_ref(&base));
        assert_eq!(rows, rows_digest(&cut));
        assert_eq!(rows, rows_digest(&[swap]));
        assert_ne!(rows, rows_digest(&[pixel]));
        assert_ne!(rows, rows_digest(&[base.slice(0, 2)]));
    }

    #[test]
    fn memory_layout_does_not_matter_and_nulls_do() {
        let strings = StringArray::from(vec![Some("x"), None, Some("yy"), Some("")]);
        let view = cast(&strings, &DataType::Utf8View).unwrap();
        let one = |a: ArrayRef| digest(&[RecordBatch::try_from_iter([("s", a)]).unwrap()]);
        let plain = one(Arc::new(strings.clone()));
        assert_eq!(plain, one(view));
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        assert_eq!(plain, one(cast(&strings, &dictionary).unwrap()));
        assert_ne!(
            plain,
            one(Arc::new(StringArray::from(vec!["x", "", "yy", ""])))
        );
        assert_ne!(
            plain,
            one(Arc::new(StringArray::from(vec![
                Some("x"),
                None,
                Some("y"),
                Some("y")
            ])))
        );
        let sliced = one(Arc::new(strings.slice(1, 2)));
        assert_eq!(
            sliced,
            one(Arc::new(StringArray::from(vec![None, Some("yy")])))
        );
    }

    #[test]
    fn a_slice_hashes_as_its_values() {
        let values: ArrayRef = Arc::new(Float32Array::from(vec![1., 2., 3.]));
        let one = |a: ArrayRef| digest(&[RecordBatch::try_from_iter([("x", a)]).unwrap()]);
        assert_eq!(
            one(values.slice(1, 1)),
            one(Arc::new(Float32Array::from(vec![2.])))
        );
        assert_eq!(one(Arc::new(Int32Array::from(vec![None::<i32>]))).len(), 64);
        let field = Field::new("x", DataType::Float32, true);
        assert!(schema_text(&Schema::new(vec![field])).contains("Float32"));
    }
}
