//! Compaction: copies an array so that its buffers hold only the values of its rows, and none
//! beneath nulls.
//!
//! A slice shares the buffers and children of the array that it was taken from. Many kernels
//! validate or convert a whole child (the bytes of a binary column, the elements of a list, the
//! values of a dictionary), so they may fail on a value that no row of the slice holds.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanBufferBuilder, DictionaryArray,
    FixedSizeListArray, GenericListViewArray, OffsetSizeTrait, PrimitiveArray, RecordBatch,
    StringViewArray, UInt64Array, UnionArray, downcast_dictionary_array, make_array,
    new_empty_array,
};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{ArrowDictionaryKeyType, ArrowNativeType, DataType, UnionMode};
use arrow::error::ArrowError;

use super::conform::with_children;
use super::hidden::{clear, mask};
use crate::record_batch::record_batch;

/// Compacts every column of a batch.
pub fn compact_batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(compact);
    let columns = columns.collect::<Result<_, ArrowError>>()?;
    record_batch(batch.schema(), columns, batch.num_rows())
}

/// Returns an array equal to `array` whose buffers and children hold only the values of the array's
/// rows, and no values beneath nulls. Each value is copied once.
pub fn compact(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if array.is_empty() {
        return Ok(new_empty_array(array.data_type()));
    }
    match array.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            take(array, &identity(array.len()), None)
        }
        DataType::Utf8View => {
            let values = array.as_string_view().iter();
            Ok(Arc::new(values.collect::<StringViewArray>()))
        }
        DataType::BinaryView => {
            let values = array.as_binary_view().iter();
            Ok(Arc::new(values.collect::<BinaryViewArray>()))
        }
        DataType::ListView(_) => compact_list_view(array.as_list_view::<i32>()),
        DataType::LargeListView(_) => compact_list_view(array.as_list_view::<i64>()),
        DataType::FixedSizeList(..) => compact_fixed_size_list(array.as_fixed_size_list()),
        DataType::Dictionary(..) => downcast_dictionary_array! {
            array => compact_dictionary(array),
            _ => Ok(Arc::clone(array)),
        },
        DataType::RunEndEncoded(..) => compact_runs(array),
        DataType::Union(_, mode) => compact_union(array.as_union(), *mode),
        // After `clear`, a list holds only the values of its rows. In an array without children,
        // each row has a separate value, and kernels process only the rows of the slice, so nothing
        // is copied.
        _ => {
            let array = clear(array, None)?.unwrap_or_else(|| Arc::clone(array));
            let rebuilt = with_children(&array, array.data_type(), |child, _| compact(&child))?;
            Ok(rebuilt.unwrap_or(array))
        }
    }
}

fn identity(rows: usize) -> UInt64Array {
    UInt64Array::from_iter_values(0..rows as u64)
}

/// Returns a compact array of those `values` that are marked in `used`, in order. Also returns the
/// new index of each kept value, by old index.
fn compact_used(
    values: &ArrayRef,
    used: &BooleanBuffer,
) -> Result<(ArrayRef, Vec<usize>), ArrowError> {
    let mut kept = 0;
    let places = used.iter().map(|is_used| {
        let place = kept;
        kept += usize::from(is_used);
        place
    });
    let places = places.collect();
    let used = UInt64Array::from_iter_values(used.set_indices().map(|value| value as u64));
    Ok((compact(&take(values, &used, None)?)?, places))
}

/// Compacts a list view, whose rows may share elements. Each element that some row uses is kept
/// once.
fn compact_list_view<O: OffsetSizeTrait>(
    list: &GenericListViewArray<O>,
) -> Result<ArrayRef, ArrowError> {
    let (DataType::ListView(item) | DataType::LargeListView(item)) = list.data_type() else {
        return Ok(Arc::new(list.clone()));
    };
    let sizes = list.sizes().iter().enumerate();
    let sizes: Vec<O> = sizes
        .map(|(row, size)| if list.is_valid(row) { *size } else { O::zero() })
        .collect();
    let mut used = BooleanBufferBuilder::new(list.values().len());
    used.append_n(list.values().len(), false);
    let rows = list.offsets().iter().zip(&sizes);
    let mut ranges: Vec<(usize, usize)> = rows
        .map(|(offset, size)| (offset.as_usize(), offset.as_usize() + size.as_usize()))
        .collect();
    ranges.sort_unstable();
    // Many rows may share elements, so each element is marked once.
    let mut marked = 0;
    for (start, end) in ranges {
        for element in start.max(marked)..end {
            used.set_bit(element, true);
        }
        marked = marked.max(end);
    }
    let (values, places) = compact_used(list.values(), &used.finish())?;
    let offsets = list.offsets().iter().zip(&sizes);
    let offsets = offsets.map(|(offset, size)| match size.as_usize() {
        0 => O::zero(),
        _ => O::usize_as(places[offset.as_usize()]),
    });
    Ok(Arc::new(GenericListViewArray::<O>::try_new(
        Arc::clone(item),
        offsets.collect(),
        ScalarBuffer::from(sizes),
        values,
        list.nulls().cloned(),
    )?))
}

/// Compacts a list of fixed size. Unlike [`clear`], this function also clears the elements beneath
/// null rows if the elements are declared non-nullable.
fn compact_fixed_size_list(list: &FixedSizeListArray) -> Result<ArrayRef, ArrowError> {
    let DataType::FixedSizeList(item, size) = list.data_type() else {
        return Ok(Arc::new(list.clone()));
    };
    let elements = list.nulls().zip(usize::try_from(*size).ok());
    let elements = elements.map(|(nulls, size)| nulls.expand(size));
    let masked = mask(list.values(), elements.as_ref())?;
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(
        Arc::clone(item),
        *size,
        compact(masked.as_ref().unwrap_or(list.values()))?,
        list.nulls().cloned(),
        list.len(),
    )?))
}

/// Compacts a dictionary: keeps the values to which some key refers, in order, and renumbers the
/// keys.
fn compact_dictionary<K: ArrowDictionaryKeyType>(
    array: &DictionaryArray<K>,
) -> Result<ArrayRef, ArrowError> {
    let (values, places) = compact_used(array.values(), &array.occupancy())?;
    let keys = array.keys().iter().map(|key| {
        let place = places.get(key?.as_usize())?;
        K::Native::from_usize(*place)
    });
    let keys: PrimitiveArray<K> = keys.collect();
    Ok(Arc::new(DictionaryArray::try_new(keys, values)?))
}

fn compact_runs(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    // `take` keeps only the runs of equal values to which the rows of `array` belong, and counts
    // the run ends from the first of these rows.
    let data = take(array, &identity(array.len()), None)?.to_data();
    let [ends, values] = data.child_data() else {
        return Ok(Arc::clone(array));
    };
    let values = compact(&make_array(values.clone()))?;
    let children = vec![ends.clone(), values.to_data()];
    Ok(make_array(
        data.into_builder().child_data(children).build()?,
    ))
}

fn compact_union(array: &UnionArray, mode: UnionMode) -> Result<ArrayRef, ArrowError> {
    let DataType::Union(fields, _) = array.data_type() else {
        return Ok(Arc::new(array.clone()));
    };
    // `take` reduces the children of a dense union to the values of the union's rows.
    let taken = match mode {
        UnionMode::Dense => take(array, &identity(array.len()), None)?,
        UnionMode::Sparse => Arc::new(array.clone()),
    };
    let taken = taken.as_union();
    let children = fields.iter().map(|(id, _)| compact(taken.child(id)));
    Ok(Arc::new(UnionArray::try_new(
        fields.clone(),
        taken.type_ids().clone(),
        taken.offsets().cloned(),
        children.collect::<Result<_, ArrowError>>()?,
    )?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayData, BinaryArray, GenericListArray, Int32Array, Int64Array, ListViewArray, MapArray,
        RunArray, StringArray, StructArray,
    };
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Fields, Int8Type, Int16Type, UnionFields};

    use super::*;

    /// A value that occurs only outside the slice or under a null.
    const GARBAGE: &str = "garbage that no row of the slice holds";

    /// Returns eight strings: garbage in rows 0, 1, 6 and 7, and beneath the null of row 4.
    fn texts() -> ArrayRef {
        let texts = [
            "g",
            "g",
            "a",
            "",
            "g",
            "some longer text than twelve",
            "g",
            "g",
        ];
        let texts = texts.map(|text| if text == "g" { GARBAGE } else { text });
        let nulls = NullBuffer::from_iter((0..8).map(|row| row != 4));
        let texts = StringArray::from_iter_values(texts);
        let (offsets, values, _) = texts.into_parts();
        Arc::new(StringArray::new(offsets, values, Some(nulls)))
    }

    fn lists<O: OffsetSizeTrait>() -> ArrayRef {
        let item = Arc::new(Field::new("element", DataType::Utf8, true));
        let offsets = [0, 1, 2, 4, 4, 5, 6, 7, 8].map(O::usize_as).to_vec();
        let nulls = NullBuffer::from_iter((0..8).map(|row| row != 4));
        let list = GenericListArray::<O>::try_new(
            item,
            OffsetBuffer::new(offsets.into()),
            texts(),
            Some(nulls),
        );
        Arc::new(list.unwrap())
    }

    /// Returns one array of each Arrow layout. Each array has eight rows; no value of rows 2 to 5
    /// is garbage.
    fn arrays() -> Vec<ArrayRef> {
        let texts = texts();
        let as_type = |data_type: DataType| cast(&texts, &data_type).unwrap();
        let struct_fields = Fields::from(vec![
            Field::new("text", DataType::Utf8, true),
            Field::new("list", lists::<i32>().data_type().clone(), true),
        ]);
        let without_nulls = texts
            .as_string::<i32>()
            .iter()
            .map(|t| t.unwrap_or(GARBAGE));
        let without_nulls: ArrayRef = Arc::new(StringArray::from_iter_values(without_nulls));
        let nulls = || Some(NullBuffer::from_iter((0..8).map(|row| row != 4)));
        let structs = StructArray::new(
            struct_fields,
            vec![Arc::clone(&without_nulls), lists::<i32>()],
            nulls(),
        );
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let pairs = take(
            &without_nulls,
            &UInt64Array::from_iter_values((0..16).map(|i| i / 2)),
            None,
        );
        let fixed = FixedSizeListArray::new(Arc::clone(&item), 2, pairs.unwrap(), nulls());
        let views = ListViewArray::new(
            item,
            ScalarBuffer::from(vec![0, 1, 2, 2, 4, 3, 0, 6]),
            ScalarBuffer::from(vec![2, 1, 2, 1, 1, 1, 8, 1]),
            Arc::clone(&without_nulls),
            nulls(),
        );
        let entry_fields = Fields::from(vec![
            Field::new("keys", DataType::Int32, false),
            Field::new("values", DataType::Utf8, true),
        ]);
        let keys: ArrayRef = Arc::new(Int32Array::from_iter_values(0..8));
        let entries = StructArray::new(
            entry_fields.clone(),
            vec![keys, Arc::clone(&without_nulls)],
            None,
        );
        let maps = MapArray::new(
            Arc::new(Field::new_struct("entries", entry_fields, false)),
            OffsetBuffer::from_lengths([1; 8]),
            entries,
            nulls(),
            false,
        );
        let key = |row: i8| (row != 4).then_some(row);
        let dictionary = DictionaryArray::<Int8Type>::new(
            PrimitiveArray::from_iter((0..8).map(key)),
            Arc::clone(&without_nulls),
        );
        let ends = PrimitiveArray::<Int16Type>::from_iter_values([2, 4, 6, 8]);
        let run_values = StringArray::from(vec![GARBAGE, "a", "b", GARBAGE]);
        let runs = RunArray::try_new(&ends, &run_values).unwrap();
        let ids = Field::new("id", DataType::Int64, true);
        let union_fields = UnionFields::from_fields([ids, Field::new("t", DataType::Utf8, true)]);
        let sound = StringArray::from(vec![GARBAGE, "x", "y", "z", "x", "y", GARBAGE, GARBAGE]);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8));
        let union = |offsets| {
            UnionArray::try_new(
                union_fields.clone(),
                vec![1, 1, 1, 0, 1, 1, 1, 1].into(),
                offsets,
                vec![Arc::clone(&numbers), Arc::new(sound.clone())],
            )
        };
        let dense = union(Some((0..8).collect())).unwrap();
        let mut arrays: Vec<ArrayRef> = vec![
            as_type(DataType::LargeUtf8),
            as_type(DataType::Binary),
            as_type(DataType::LargeBinary),
            as_type(DataType::Utf8View),
            as_type(DataType::BinaryView),
            lists::<i32>(),
            lists::<i64>(),
            Arc::new(structs),
            Arc::new(fixed),
            Arc::new(views),
            Arc::new(maps),
            Arc::new(dictionary),
            Arc::new(runs),
            Arc::new(dense),
            Arc::new(union(None).unwrap()),
            numbers,
        ];
        // Each array is also tested inside a list and inside a struct.
        for array in arrays.clone() {
            let field = Arc::new(Field::new("nested", array.data_type().clone(), true));
            let list = GenericListArray::<i32>::new(
                Arc::clone(&field),
                OffsetBuffer::from_lengths([1; 8]),
                Arc::clone(&array),
                None,
            );
            arrays.push(Arc::new(list));
            let fields = Fields::from(vec![field]);
            arrays.push(Arc::new(StructArray::new(fields, vec![array], None)));
        }
        arrays.push(texts);
        arrays
    }

    fn holds(data: &ArrayData, text: &[u8]) -> bool {
        let mut buffers = data.buffers().iter();
        buffers.any(|b| b.as_slice().windows(text.len()).any(|w| w == text))
            || data.child_data().iter().any(|child| holds(child, text))
    }

    #[test]
    fn a_compact_slice_is_equal_and_holds_no_other_value() {
        for array in arrays() {
            let what = array.data_type();
            let has_bytes = ["Utf8", "Binary"]
                .iter()
                .any(|t| what.to_string().contains(t));
            assert_eq!(
                holds(&array.to_data(), GARBAGE.as_bytes()),
                has_bytes,
                "{what}"
            );
            let slice = array.slice(2, 4);
            let own = compact(&slice).unwrap();
            assert_eq!(&own, &slice, "{what}");
            assert_eq!(own.data_type(), what);
            own.to_data().validate_full().unwrap();
            assert!(!holds(&own.to_data(), GARBAGE.as_bytes()), "{what}");
            // Slices of a single row are compacted correctly, too.
            for row in 2..6 {
                let one = compact(&array.slice(row, 1)).unwrap();
                assert_eq!(&one, &array.slice(row, 1), "{what}, row {row}");
            }
            assert_eq!(compact(&array.slice(3, 0)).unwrap().len(), 0);
            assert_eq!(&compact(&array).unwrap(), &array, "{what}");
        }
    }

    #[test]
    fn invalid_utf8_stays_with_its_row() {
        let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![
            b"ok".as_slice(),
            b"\xff\xfe",
            b"fine",
        ]));
        let own = compact(&bytes.slice(2, 1)).unwrap();
        assert_eq!(own.as_binary::<i32>().value_data(), b"fine");
    }
}
