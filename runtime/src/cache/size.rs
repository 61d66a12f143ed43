//! Computes the size of each row of a batch, and copies batches so that a copy keeps no memory of
//! other rows alive.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ByteView, OffsetSizeTrait, RecordBatch, RecordBatchOptions,
    make_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

/// Returns the approximate size of each row in bytes: exact except for null bits and for types that
/// are rare in rows.
pub(super) fn row_bytes(batch: &RecordBatch) -> Vec<u64> {
    let mut sizes = vec![0; batch.num_rows()];
    for column in batch.columns() {
        add(column, &mut sizes);
    }
    sizes
}

fn add(array: &dyn Array, sizes: &mut [u64]) {
    match array.data_type() {
        DataType::Utf8 => offsets(array.as_string::<i32>().offsets(), sizes, |n| n),
        DataType::LargeUtf8 => offsets(array.as_string::<i64>().offsets(), sizes, |n| n),
        DataType::Binary => offsets(array.as_binary::<i32>().offsets(), sizes, |n| n),
        DataType::LargeBinary => offsets(array.as_binary::<i64>().offsets(), sizes, |n| n),
        DataType::Utf8View => views(array.as_string_view().views(), sizes),
        DataType::BinaryView => views(array.as_binary_view().views(), sizes),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            lists(list.offsets(), list.values(), sizes);
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            lists(list.offsets(), list.values(), sizes);
        }
        DataType::Map(..) => {
            let map = array.as_map();
            lists(map.offsets(), map.entries(), sizes);
        }
        DataType::FixedSizeList(_, length) => {
            let list = array.as_fixed_size_list();
            let length = u64::try_from(*length).unwrap_or(0);
            match fixed(&list.value_type()) {
                Some(width) => every(sizes, width.saturating_mul(length)),
                None => {
                    let mut values = vec![0; list.values().len()];
                    add(list.values(), &mut values);
                    let groups = values.chunks(usize::try_from(length).unwrap_or(0).max(1));
                    for (size, group) in sizes.iter_mut().zip(groups) {
                        *size += group.iter().sum::<u64>();
                    }
                }
            }
        }
        DataType::Struct(_) => {
            for column in array.as_struct().columns() {
                add(column, sizes);
            }
        }
        other => match fixed(other) {
            Some(width) => every(sizes, width),
            None => {
                let each = array.get_array_memory_size() / array.len().max(1);
                every(sizes, each as u64);
            }
        },
    }
}

/// Returns the size in bytes of one value of `data_type`; `None` when the size differs between
/// values.
fn fixed(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Boolean => Some(1),
        DataType::Null => Some(0),
        DataType::FixedSizeBinary(width) => u64::try_from(*width).ok(),
        DataType::Dictionary(key, _) => fixed(key),
        other => other.primitive_width().map(|width| width as u64),
    }
}

fn every(sizes: &mut [u64], bytes: u64) {
    for size in sizes {
        *size = size.saturating_add(bytes);
    }
}

fn offsets<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    sizes: &mut [u64],
    bytes: impl Fn(u64) -> u64,
) {
    for (size, length) in sizes.iter_mut().zip(offsets.lengths()) {
        *size += bytes(length as u64) + size_of::<O>() as u64;
    }
}

fn lists<O: OffsetSizeTrait>(ends: &OffsetBuffer<O>, values: &dyn Array, sizes: &mut [u64]) {
    if let Some(width) = fixed(values.data_type()) {
        return offsets(ends, sizes, |length| length * width);
    }
    let mut each = vec![0; values.len()];
    add(values, &mut each);
    for (size, ends) in sizes.iter_mut().zip(ends.windows(2)) {
        let within = each.get(ends[0].as_usize()..ends[1].as_usize());
        *size += within.map_or(0, |each| each.iter().sum()) + size_of::<O>() as u64;
    }
}

fn views(views: &[u128], sizes: &mut [u64]) {
    for (size, view) in sizes.iter_mut().zip(views) {
        *size += size_of::<u128>() as u64 + u64::from(ByteView::from(*view).length);
    }
}

/// Returns the rows of `batch` without the bytes of other rows in the buffers of view columns.
/// Encoding would write those buffers whole.
pub(super) fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !batch.columns().iter().any(|c| holds_views(c.data_type())) {
        return Ok(batch.clone());
    }
    let columns = batch
        .columns()
        .iter()
        .map(compact_array)
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

fn holds_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => holds_views(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_views(field.data_type())),
        _ => false,
    }
}

fn compact_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Utf8View => Ok(Arc::new(array.as_string_view().gc())),
        DataType::BinaryView => Ok(Arc::new(array.as_binary_view().gc())),
        nested if holds_views(nested) => {
            let data = array.to_data();
            let children = data
                .child_data()
                .iter()
                .map(|child| Ok(compact_array(&make_array(child.clone()))?.to_data()))
                .collect::<Result<Vec<_>, ArrowError>>()?;
            Ok(make_array(
                data.into_builder().child_data(children).build()?,
            ))
        }
        _ => Ok(Arc::clone(array)),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, BooleanArray, FixedSizeListArray, Int32Array, ListArray, StringArray,
        StringViewArray, StructArray,
    };
    use arrow::datatypes::{Field, Int32Type};

    use super::*;

    fn sizes(column: ArrayRef) -> Vec<u64> {
        row_bytes(&RecordBatch::try_from_iter([("c", column)]).unwrap())
    }

    #[test]
    fn each_row_has_its_own_size() {
        assert_eq!(sizes(Arc::new(Int32Array::from(vec![1, 2]))), [4, 4]);
        assert_eq!(sizes(Arc::new(BooleanArray::from(vec![true]))), [1]);
        assert_eq!(sizes(Arc::new(StringArray::from(vec!["abc", ""]))), [7, 4]);
        let bytes = BinaryArray::from_vec(vec![&[1; 9], &[2; 100], &[]]);
        assert_eq!(sizes(Arc::new(bytes.slice(1, 2))), [104, 4]);
        let view = StringViewArray::from(vec!["short", "a text longer than twelve bytes"]);
        assert_eq!(sizes(Arc::new(view)), [21, 47]);
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1); 3]),
            Some(vec![]),
        ]);
        assert_eq!(sizes(Arc::new(list.clone())), [16, 4]);
        let field = Arc::new(Field::new("l", list.data_type().clone(), true));
        let nested = StructArray::from(vec![(field, Arc::new(list) as ArrayRef)]);
        assert_eq!(sizes(Arc::new(nested.slice(1, 1))), [4]);
        let texts = StringArray::from(vec!["ab", "", "c", "d"]);
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let pairs = FixedSizeListArray::new(item, 2, Arc::new(texts), None);
        assert_eq!(sizes(Arc::new(pairs.slice(1, 1))), [10]);
    }

    #[test]
    fn shared_bytes_are_left_behind() {
        let long = "x".repeat(1000);
        let view = StringViewArray::from(vec![long.as_str(); 50]).slice(3, 1);
        let field = Arc::new(Field::new("v", DataType::Utf8View, false));
        let nested = StructArray::from(vec![(field, Arc::new(view.clone()) as ArrayRef)]);
        let columns: [(&str, ArrayRef); 2] = [("a", Arc::new(view)), ("b", Arc::new(nested))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let small = compact(&batch).unwrap();
        assert_eq!(small, batch);
        assert!(small.get_array_memory_size() < 5000);
        assert!(batch.get_array_memory_size() > 50_000);
    }
}
