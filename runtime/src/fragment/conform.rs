//! Conversion of arrays to their declared types.
//!
//! A kernel chooses the field name of the list items in its result, and may choose different names
//! for different rows. A column must always have the type that the plan declares.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, GenericListViewArray, MapArray,
    OffsetSizeTrait, StructArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;

/// Converts `array` to `data_type`: renames nested fields, and casts values whose types differ.
pub fn conform(array: ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == data_type {
        return Ok(array);
    }
    if let Some(converted) = with_children(&array, data_type, conform)? {
        return Ok(converted);
    }
    let options = CastOptions {
        safe: false,
        format_options: FormatOptions::default(),
    };
    cast_with_options(&array, data_type, &options)
}

/// A function that converts a child of an array to the type of that child in the rebuilt array.
type Convert = fn(ArrayRef, &DataType) -> Result<ArrayRef, ArrowError>;

/// Rebuilds `array` with type `data_type`, and converts its children with `convert`; `None` if
/// `array` has no children, or not the same children as `data_type`.
pub(super) fn with_children(
    array: &ArrayRef,
    data_type: &DataType,
    convert: Convert,
) -> Result<Option<ArrayRef>, ArrowError> {
    let rebuilt: ArrayRef = match (array.data_type(), data_type) {
        (DataType::List(_), DataType::List(item)) => list(array.as_list::<i32>(), item, convert)?,
        (DataType::LargeList(_), DataType::LargeList(item)) => {
            list(array.as_list::<i64>(), item, convert)?
        }
        (DataType::ListView(_), DataType::ListView(item)) => {
            list_view(array.as_list_view::<i32>(), item, convert)?
        }
        (DataType::LargeListView(_), DataType::LargeListView(item)) => {
            list_view(array.as_list_view::<i64>(), item, convert)?
        }
        (DataType::FixedSizeList(_, have), DataType::FixedSizeList(item, want)) if have == want => {
            let list = array.as_fixed_size_list();
            Arc::new(FixedSizeListArray::try_new_with_length(
                Arc::clone(item),
                *want,
                convert(Arc::clone(list.values()), item.data_type())?,
                list.nulls().cloned(),
                list.len(),
            )?)
        }
        (DataType::Map(..), DataType::Map(entry, is_ordered)) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            Arc::new(MapArray::try_new(
                Arc::clone(entry),
                map.offsets().clone(),
                convert(entries, entry.data_type())?.as_struct().clone(),
                map.nulls().cloned(),
                *is_ordered,
            )?)
        }
        (DataType::Struct(have), DataType::Struct(want)) if have.len() == want.len() => {
            let values = array.as_struct();
            let columns = values.columns().iter().zip(want);
            let columns =
                columns.map(|(column, field)| convert(Arc::clone(column), field.data_type()));
            Arc::new(StructArray::try_new_with_length(
                want.clone(),
                columns.collect::<Result<_, ArrowError>>()?,
                values.nulls().cloned(),
                values.len(),
            )?)
        }
        (DataType::Dictionary(have, _), DataType::Dictionary(want, values)) if have == want => {
            let dictionary = array.as_any_dictionary();
            dictionary.with_values(convert(Arc::clone(dictionary.values()), values)?)
        }
        _ => return Ok(None),
    };
    Ok(Some(rebuilt))
}

fn list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
    convert: Convert,
) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(GenericListArray::<O>::try_new(
        Arc::clone(item),
        list.offsets().clone(),
        convert(Arc::clone(list.values()), item.data_type())?,
        list.nulls().cloned(),
    )?))
}

fn list_view<O: OffsetSizeTrait>(
    list: &GenericListViewArray<O>,
    item: &FieldRef,
    convert: Convert,
) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(GenericListViewArray::<O>::try_new(
        Arc::clone(item),
        list.offsets().clone(),
        list.sizes().clone(),
        convert(Arc::clone(list.values()), item.data_type())?,
        list.nulls().cloned(),
    )?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::{Field, Fields, Int64Type};

    use super::*;

    #[test]
    fn fields_are_renamed_at_any_depth() {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let inner =
            |name: &str| Field::new_list("l", Field::new(name, DataType::Int64, true), true);
        let of = |name: &str| Fields::from(vec![inner(name)]);
        let have = StructArray::new(of("item"), vec![Arc::new(list.clone())], None);
        let array = conform(Arc::new(have), &DataType::Struct(of("element"))).unwrap();
        assert_eq!(array.data_type(), &DataType::Struct(of("element")));
        let lists = array.as_struct().column(0).as_list::<i32>();
        assert_eq!(lists.offsets(), list.offsets());
        assert!(lists.is_null(1) && !lists.is_null(2));
        assert_eq!(lists.values(), list.values());
    }

    #[test]
    fn another_type_is_cast_and_failures_are_errors() {
        let array: ArrayRef = Arc::new(Int64Array::from(vec![1, 300]));
        assert_eq!(
            conform(Arc::clone(&array), &DataType::Utf8)
                .unwrap()
                .as_string::<i32>()
                .value(1),
            "300"
        );
        assert!(conform(array, &DataType::Int8).is_err());
    }
}
