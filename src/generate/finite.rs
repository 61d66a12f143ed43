//! Rejects NaN and infinite numbers. JSON has no such numbers, and the JSON writer would turn these
//! numbers into null.

use arrow::array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

/// Fails if a batch holds a number that is not finite. The columns of the batch must already have
/// the types in which JSON files store columns.
pub(super) fn check(batch: &RecordBatch) -> Result<(), ArrowError> {
    let schema = batch.schema_ref();
    let mut columns = schema.fields().iter().zip(batch.columns());
    match columns.find(|(_, column)| !are_finite(column)) {
        Some((field, _)) => Err(ArrowError::InvalidArgumentError(format!(
            "column \"{}\": a number is NaN or infinite, which JSON files do not hold; write a .parquet, .arrow or .csv file, or replace such numbers",
            field.name()
        ))),
        None => Ok(()),
    }
}

/// True if all numbers in the rows of an array are finite.
fn are_finite(array: &dyn Array) -> bool {
    let is_clean = match array.data_type() {
        DataType::Float16 => return floats::<Float16Type>(array, |x| x.is_finite()),
        DataType::Float32 => return floats::<Float32Type>(array, f32::is_finite),
        DataType::Float64 => return floats::<Float64Type>(array, f64::is_finite),
        DataType::List(_) => are_finite(array.as_list::<i32>().values()),
        DataType::LargeList(_) => are_finite(array.as_list::<i64>().values()),
        DataType::FixedSizeList(..) => are_finite(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().all(|of| are_finite(of)),
        DataType::Map(..) => are_finite(array.as_map().entries()),
        _ => return true,
    };
    // The child arrays may have numbers outside the array's rows and under nulls. If such a number
    // is not finite, the rows are checked one by one.
    is_clean || (0..array.len()).all(|row| is_finite(array, row))
}

fn floats<T: ArrowPrimitiveType>(array: &dyn Array, is_finite: fn(T::Native) -> bool) -> bool {
    let array = array.as_primitive::<T>();
    // The check of all values is faster than the check of the non-null values. The value under a
    // null is finite in most arrays, so the second check is rarely needed.
    array.values().iter().all(|&value| is_finite(value)) || array.iter().flatten().all(is_finite)
}

/// True if all numbers in one row of an array are finite.
fn is_finite(array: &dyn Array, row: usize) -> bool {
    if array.is_null(row) {
        return true;
    }
    match array.data_type() {
        DataType::List(_) => are_finite(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => are_finite(&array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => are_finite(&array.as_fixed_size_list().value(row)),
        DataType::Map(..) => are_finite(&array.as_map().value(row)),
        DataType::Struct(_) => {
            let mut columns = array.as_struct().columns().iter();
            columns.all(|column| is_finite(column, row))
        }
        _ => are_finite(&array.slice(row, 1)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Float32Array, Float64Array, Int64Array, ListArray, StructArray, new_null_array,
    };
    use arrow::buffer::NullBuffer;
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Fields};

    use super::*;

    #[test]
    fn numbers_are_found_in_rows_and_nowhere_else() {
        let good: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-0.0)]));
        assert!(are_finite(&good));
        assert!(are_finite(&Int64Array::from(vec![1])));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let odd = Float32Array::from(vec![Some(1.0), None, Some(odd)]);
            for float in [DataType::Float16, DataType::Float32, DataType::Float64] {
                let odd = cast(&odd, &float).unwrap();
                assert!(!are_finite(&odd), "{float}");
                assert!(are_finite(&odd.slice(0, 2)), "{float}");
            }
        }
        let odd: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::NAN, 2.0]));
        let hidden = NullBuffer::from(vec![true, false, true]);
        let under_null = Float64Array::new(vec![1.0, f64::NAN, 2.0].into(), Some(hidden.clone()));
        assert!(are_finite(&under_null));
        let fields = Fields::from(vec![Field::new("x", DataType::Float64, true)]);
        let structs = |nulls| StructArray::new(fields.clone(), vec![Arc::clone(&odd)], nulls);
        assert!(!are_finite(&structs(None)));
        assert!(are_finite(&structs(Some(hidden))));
        assert!(are_finite(&structs(None).slice(2, 1)));
        let lists = [
            Some(vec![Some(1.0), None]),
            None,
            Some(vec![Some(f64::NAN)]),
        ];
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(lists);
        assert!(!are_finite(&lists));
        assert!(are_finite(&lists.slice(0, 2)));
        assert!(are_finite(&new_null_array(lists.data_type(), 3)));
    }
}
