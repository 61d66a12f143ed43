//! Hidden values: data that an array holds beneath a null struct or list.
//!
//! Arrow leaves these values undefined, but many functions read them: `(CASE WHEN c THEN st
//! END)['a']` returned the field of a null struct, and `array_append(list, 7)` returned the
//! elements of a null list. Therefore arrays of nested types are cleared before a function reads
//! them: the fields of a null struct become null, a null list becomes empty, and unused list values
//! are removed. An array without hidden values is returned unchanged.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, FixedSizeListArray,
    GenericListArray, ListArray, MapArray, OffsetSizeTrait, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{filter, nullif};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::Result;

/// Returns `array` without hidden values at any level of nesting.
pub fn cleared(array: &ArrayRef) -> Result<ArrayRef> {
    let cleared = clear(array, None)?;
    Ok(cleared.unwrap_or_else(|| Arc::clone(array)))
}

/// Returns `array` without hidden values and with nulls wherever `outer` is null; `None` if `array`
/// needs no change.
pub(super) fn clear(
    array: &ArrayRef,
    outer: Option<&NullBuffer>,
) -> Result<Option<ArrayRef>, ArrowError> {
    match array.data_type() {
        DataType::Struct(_) => clear_struct(array.as_struct(), outer),
        DataType::List(_) => Ok(clear_list(array.as_list::<i32>(), outer)?.map(array_ref)),
        DataType::LargeList(_) => Ok(clear_list(array.as_list::<i64>(), outer)?.map(array_ref)),
        DataType::FixedSizeList(..) => clear_fixed(array.as_fixed_size_list(), outer),
        DataType::Map(..) => clear_map(array.as_map(), outer),
        DataType::Dictionary(..) => clear_dictionary(array, outer),
        _ => mask(array, outer),
    }
}

fn array_ref(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

/// Unites `own`, the nulls of an array, with `outer`, the nulls of the struct or list around the
/// array. The flag is true if `own` lacks some nulls of `outer`.
fn united<'a>(
    own: Option<&'a NullBuffer>,
    outer: Option<&'a NullBuffer>,
) -> (Option<Cow<'a, NullBuffer>>, bool) {
    match (own, outer.filter(|outer| outer.null_count() > 0)) {
        (own, None) => (own.map(Cow::Borrowed), false),
        (None, Some(outer)) => (Some(Cow::Borrowed(outer)), true),
        (Some(own), Some(outer)) if own.contains(outer) => (Some(Cow::Borrowed(own)), false),
        (Some(own), Some(outer)) => (
            NullBuffer::union(Some(own), Some(outer)).map(Cow::Owned),
            true,
        ),
    }
}

/// Returns `array` with nulls wherever `outer` is null, but with unchanged children; `None` if
/// `array` needs no change.
pub(super) fn mask(
    array: &ArrayRef,
    outer: Option<&NullBuffer>,
) -> Result<Option<ArrayRef>, ArrowError> {
    let Some(outer) = outer.filter(|outer| outer.null_count() > 0) else {
        return Ok(None);
    };
    let has_all = |nulls: &NullBuffer| nulls.null_count() > 0 && nulls.contains(outer);
    match array.data_type() {
        // Arrays of these types have no null buffer. The planner refuses access to struct fields of
        // these types.
        DataType::Null | DataType::Union(..) | DataType::RunEndEncoded(..) => return Ok(None),
        _ if array.nulls().is_some_and(has_all) => return Ok(None),
        _ => {}
    }
    nullif(array, &BooleanArray::new(!outer.inner(), None)).map(Some)
}

fn clear_struct(
    array: &StructArray,
    outer: Option<&NullBuffer>,
) -> Result<Option<ArrayRef>, ArrowError> {
    let (nulls, mut changed) = united(array.nulls(), outer);
    let mut columns = Vec::with_capacity(array.num_columns());
    for column in array.columns() {
        let cleared = clear(column, nulls.as_deref())?;
        changed |= cleared.is_some();
        columns.push(cleared.unwrap_or_else(|| Arc::clone(column)));
    }
    if !changed {
        return Ok(None);
    }
    let (fields, nulls) = (array.fields().clone(), nulls.map(Cow::into_owned));
    let array = StructArray::try_new_with_length(fields, columns, nulls, array.len())?;
    Ok(Some(Arc::new(array)))
}

fn clear_list<O: OffsetSizeTrait>(
    array: &GenericListArray<O>,
    outer: Option<&NullBuffer>,
) -> Result<Option<GenericListArray<O>>, ArrowError> {
    let (DataType::List(item) | DataType::LargeList(item)) = array.data_type() else {
        return Ok(None);
    };
    let (nulls, more) = united(array.nulls(), outer);
    let (offsets, values) = match clear_parts(array.offsets(), array.values(), nulls.as_deref())? {
        None if !more => return Ok(None),
        None => (array.offsets().clone(), Arc::clone(array.values())),
        Some(parts) => parts,
    };
    let (item, nulls) = (Arc::clone(item), nulls.map(Cow::into_owned));
    GenericListArray::try_new(item, offsets, values, nulls).map(Some)
}

fn clear_map(array: &MapArray, outer: Option<&NullBuffer>) -> Result<Option<ArrayRef>, ArrowError> {
    let DataType::Map(entry, is_ordered) = array.data_type() else {
        return Ok(None);
    };
    let Some(list) = clear_list(&ListArray::from(array.clone()), outer)? else {
        return Ok(None);
    };
    let (_, offsets, entries, nulls) = list.into_parts();
    let entries = entries.as_struct().clone();
    let array = MapArray::try_new(Arc::clone(entry), offsets, entries, nulls, *is_ordered)?;
    Ok(Some(Arc::new(array)))
}

/// Removes the entries of `values` that belong to no list or to a null list. Returns the new
/// offsets and values, or `None` if nothing changed.
fn clear_parts<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    values: &ArrayRef,
    nulls: Option<&NullBuffer>,
) -> Result<Option<(OffsetBuffer<O>, ArrayRef)>, ArrowError> {
    let at = |index: usize| offsets[index].as_usize();
    let (first, last) = (at(0), at(offsets.len() - 1));
    let is_hidden = |row: usize| at(row) < at(row + 1) && nulls.is_some_and(|n| n.is_null(row));
    let rows = offsets.len() - 1;
    let has_nulls = nulls.is_some_and(|nulls| nulls.null_count() > 0);
    if has_nulls && (0..rows).any(is_hidden) {
        let mut kept = BooleanBufferBuilder::new(values.len());
        kept.append_n(first, false);
        let mut lengths = Vec::with_capacity(rows);
        for row in 0..rows {
            let length = at(row + 1) - at(row);
            let hidden = is_hidden(row);
            kept.append_n(length, !hidden);
            lengths.push(if hidden { 0 } else { length });
        }
        kept.append_n(values.len() - last, false);
        let values = filter(values, &BooleanArray::new(kept.finish(), None))?;
        let values = clear(&values, None)?.unwrap_or(values);
        return Ok(Some((OffsetBuffer::from_lengths(lengths), values)));
    }
    if first > 0 || last < values.len() {
        let values = values.slice(first, last - first);
        let values = clear(&values, None)?.unwrap_or(values);
        let shifted: Vec<O> = offsets.iter().map(|&o| o - offsets[0]).collect();
        return Ok(Some((OffsetBuffer::new(shifted.into()), values)));
    }
    let values = clear(values, None)?;
    Ok(values.map(|values| (offsets.clone(), values)))
}

fn clear_fixed(
    array: &FixedSizeListArray,
    outer: Option<&NullBuffer>,
) -> Result<Option<ArrayRef>, ArrowError> {
    let DataType::FixedSizeList(item, size) = array.data_type() else {
        return Ok(None);
    };
    let (nulls, more) = united(array.nulls(), outer);
    // Tensors have non-nullable elements. A null tensor may hide millions of elements, which are
    // left as they are.
    let elements = match (usize::try_from(*size), item.is_nullable()) {
        (Ok(size), true) => nulls.as_deref().map(|nulls| nulls.expand(size)),
        _ => None,
    };
    let values = clear(array.values(), elements.as_ref())?;
    if values.is_none() && !more {
        return Ok(None);
    }
    let values = values.unwrap_or_else(|| Arc::clone(array.values()));
    let (item, nulls) = (FieldRef::clone(item), nulls.map(Cow::into_owned));
    let array = FixedSizeListArray::try_new_with_length(item, *size, values, nulls, array.len())?;
    Ok(Some(Arc::new(array)))
}

fn clear_dictionary(
    array: &ArrayRef,
    outer: Option<&NullBuffer>,
) -> Result<Option<ArrayRef>, ArrowError> {
    // A row whose key refers to a null among the values is null, too. Casts read only the nulls of
    // the keys, so the key of such a row is made null.
    let values = array.as_any_dictionary().values();
    let of_values = if values.null_count() > 0 {
        array.logical_nulls()
    } else {
        None
    };
    let nulls = NullBuffer::union(of_values.as_ref(), outer);
    let masked = mask(array, nulls.as_ref())?;
    let dictionary = masked.as_ref().unwrap_or(array).as_any_dictionary();
    let values = clear(dictionary.values(), None)?;
    Ok(values
        .map(|values| dictionary.with_values(values))
        .or(masked))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::buffer::ScalarBuffer;
    use arrow::compute::{concat, take};
    use arrow::datatypes::{Field, Fields};

    use super::*;

    fn nulls(valid: [bool; 3]) -> Option<NullBuffer> {
        Some(NullBuffer::from(valid.to_vec()))
    }

    /// Returns the lists `[0]`, null and `[3]`. The null list hides two values, and the child array
    /// has one unused value before and one after the lists. These values depend on `garbage`.
    fn list(garbage: i32) -> ListArray {
        let values = Int32Array::from(vec![garbage, 0, 1 + garbage, 2, 3, garbage]);
        let item = Arc::new(Field::new("element", DataType::Int32, false));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![1, 2, 4, 5]));
        ListArray::new(item, offsets, Arc::new(values), nulls([true, false, true]))
    }

    /// Returns three structs of a number and a list. The last struct is null and hides `garbage`.
    fn structs(garbage: i32) -> StructArray {
        let fields = Fields::from(vec![
            Field::new("a", DataType::Int32, false),
            Field::new("b", list(0).data_type().clone(), true),
        ]);
        let a = Int32Array::from(vec![7, 8, garbage]);
        let columns: Vec<ArrayRef> = vec![Arc::new(a), Arc::new(list(garbage))];
        StructArray::new(fields, columns, nulls([true, true, false]))
    }

    #[test]
    fn null_lists_are_empty_and_unused_values_are_removed() {
        let list: ArrayRef = Arc::new(list(9));
        let clear = cleared(&list).unwrap();
        let clear = clear.as_list::<i32>();
        assert_eq!(clear.value_offsets(), [0, 1, 1, 2]);
        assert_eq!(clear.values().as_ref(), &Int32Array::from(vec![0, 3]));
        assert_eq!(clear, list.as_list::<i32>());
    }

    #[test]
    fn the_fields_of_a_null_struct_are_null_even_if_declared_non_nullable() {
        let array: ArrayRef = Arc::new(structs(9));
        let clear = cleared(&array).unwrap();
        let clear = clear.as_struct();
        assert_eq!(clear.column(0).nulls(), array.nulls());
        let b = clear.column(1).as_list::<i32>();
        assert_eq!(
            (b.value_offsets(), b.values().len()),
            ([0, 1, 1, 1].as_slice(), 1)
        );
        assert_eq!(clear, array.as_struct());
    }

    #[test]
    fn hidden_values_make_no_difference_in_nested_lists() {
        let nested = |garbage: i32| -> ArrayRef {
            let structs: ArrayRef = Arc::new(structs(garbage));
            let item = Arc::new(Field::new("item", structs.data_type().clone(), true));
            let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 1, 3]));
            Arc::new(ListArray::new(item, offsets, structs, None))
        };
        let fixed = |garbage: i32| -> ArrayRef {
            let values = Int32Array::from(vec![1, 2, garbage, garbage, 5, 6]);
            let item = Arc::new(Field::new("item", DataType::Int32, true));
            let nulls = nulls([true, false, true]);
            Arc::new(FixedSizeListArray::new(item, 2, Arc::new(values), nulls))
        };
        for make in [nested as fn(i32) -> ArrayRef, fixed] {
            let [one, other] = [make(1), make(-1)].map(|array| cleared(&array).unwrap());
            let (one, other) = (one.to_data(), other.to_data());
            assert_eq!(one, other);
            let hidden = |data: &arrow::array::ArrayData| data.child_data()[0].clone();
            assert_eq!(hidden(&one), hidden(&other));
        }
    }

    #[test]
    fn an_array_without_hidden_values_is_returned_unchanged() {
        let array: ArrayRef = Arc::new(structs(9));
        let clear = cleared(&array).unwrap();
        assert!(Arc::ptr_eq(&clear, &cleared(&clear).unwrap()));
        // The results of `take` and `concat` over cleared arrays have no hidden values, either.
        let picked = take(
            &clear,
            &Int32Array::from(vec![Some(2), None, Some(0)]),
            None,
        )
        .unwrap();
        let both = concat(&[&picked, &clear]).unwrap();
        assert!(Arc::ptr_eq(&both, &cleared(&both).unwrap()));
        let sliced = cleared(&both.slice(1, 3)).unwrap();
        assert_eq!(sliced.as_struct(), both.slice(1, 3).as_struct());
    }
}
