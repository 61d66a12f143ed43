//! Concatenation of arrays, and of some of their rows.
//!
//! A batch of images that is made of several segments takes tens of megabytes. Faulting in fresh
//! memory of that size takes about as long as computing the images, so the elements of large
//! columns are copied to the memory of earlier columns ([`buffer_pool`]).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBufferBuilder, FixedSizeListArray,
    ListArray, PrimitiveArray, StructArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Float16Type, Float32Type, UInt8Type};
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use forebay_udfs::OversizedBatch;
use forebay_udfs::buffer_pool::{self, Recycled, SMALL};

use super::compact::compact;
use super::unwind::caught;

/// Size in bytes from which a row is copied as a slice.
const LARGE_ROW: usize = 4 << 10;

/// Error that several rows do not fit into one array, although each row alone does. The offsets of
/// a string column, for example, end at 2 GiB, and the keys of a dictionary at the maximum of the
/// key type. No row is at fault.
#[derive(Debug, thiserror::Error)]
#[error("{rows} rows do not fit into one column of type {data_type}: {cause}")]
pub struct Oversized {
    rows: usize,
    data_type: DataType,
    cause: ArrowError,
}

/// Returns true if `error` says that the rows of a batch do not fit into one array.
pub fn is_oversized(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            is_oversized(inner)
        }
        DataFusionError::Shared(inner) => is_oversized(inner),
        DataFusionError::External(source) => {
            source.is::<Oversized>() || source.is::<OversizedBatch>()
        }
        DataFusionError::ArrowError(arrow, _) => is_overflow(arrow),
        _ => false,
    }
}

fn is_overflow(error: &ArrowError) -> bool {
    matches!(
        error,
        ArrowError::OffsetOverflowError(_) | ArrowError::DictionaryKeyOverflowError
    )
}

/// Concatenates arrays of the same type.
///
/// # Errors
/// Returns an error for which [`is_oversized`] is true if the arrays do not fit into one array.
pub fn concatenated(arrays: &[&dyn Array]) -> Result<ArrayRef> {
    if let Ok(Ok(joined)) = caught(|| joined(arrays)) {
        return Ok(joined);
    }
    // A dictionary may hold values that no row uses. Without these values, the arrays may fit.
    let own = arrays
        .iter()
        .map(|array| compact(&array.slice(0, array.len())));
    let own = own.collect::<std::result::Result<Vec<_>, _>>()?;
    let own: Vec<&dyn Array> = own.iter().map(AsRef::as_ref).collect();
    // Arrow panics on overflowing list offsets.
    let cause = match caught(|| concat(&own)) {
        Ok(Ok(joined)) => return Ok(joined),
        Ok(Err(error)) if is_overflow(&error) => error,
        Ok(Err(error)) => return Err(error.into()),
        Err(panicked) => ArrowError::ComputeError(panicked.to_string()),
    };
    let first = arrays.first().map(|array| array.data_type().clone());
    Err(DataFusionError::External(Box::new(Oversized {
        rows: arrays.iter().map(|array| array.len()).sum(),
        data_type: first.unwrap_or(DataType::Null),
        cause,
    })))
}

/// True if the rows of `array` are images or other large values. Arrow's kernels that select rows copy
/// them element by element.
pub fn has_large_rows(array: &dyn Array) -> bool {
    let is_nested = matches!(
        array.data_type(),
        DataType::FixedSizeList(..) | DataType::List(_) | DataType::Struct(_)
    );
    is_nested && bytes_of(array) / array.len().max(1) >= LARGE_ROW
}

/// Returns the rows of `array` at `indices`, which are not null, in that order.
pub fn taken(array: &ArrayRef, indices: &UInt64Array) -> Result<ArrayRef> {
    if indices.is_empty() || !has_large_rows(array) {
        return Ok(take(array, indices, None)?);
    }
    let runs = indices.values().chunk_by(|row, next| row + 1 == *next);
    let slices: Vec<ArrayRef> =
        { runs.map(|run| array.slice(run[0] as usize, run.len())) }.collect();
    concatenated(&slices.iter().map(AsRef::as_ref).collect::<Vec<_>>())
}

/// Size of the rows of an array in bytes.
fn bytes_of(array: &dyn Array) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or(0)
}

/// Concatenates arrays of the same type, large ones in recycled memory.
fn joined(arrays: &[&dyn Array]) -> Result<ArrayRef, ArrowError> {
    let bytes: usize = arrays.iter().map(|array| bytes_of(*array)).sum();
    let Some(first) = arrays.first().filter(|_| bytes >= SMALL) else {
        return concat(arrays);
    };
    match first.data_type() {
        DataType::UInt8 => elements::<UInt8Type>(arrays),
        DataType::Float16 => elements::<Float16Type>(arrays),
        DataType::Float32 => elements::<Float32Type>(arrays),
        DataType::FixedSizeList(field, size) if *size > 0 => {
            let lists = arrays.iter().map(|array| array.as_fixed_size_list());
            let values: Vec<&dyn Array> = lists.map(|list| list.values().as_ref()).collect();
            let (field, values) = (Arc::clone(field), joined(&values)?);
            let lists = FixedSizeListArray::try_new(field, *size, values, validity(arrays))?;
            Ok(Arc::new(lists))
        }
        DataType::List(field) => {
            let lists = || arrays.iter().map(|array| array.as_list::<i32>());
            let values: Vec<ArrayRef> = lists().map(values_of).collect();
            let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
            let elements: usize = values.iter().map(|array| array.len()).sum();
            if i32::try_from(elements).is_err() {
                return Err(ArrowError::OffsetOverflowError(elements));
            }
            let offsets =
                OffsetBuffer::from_lengths(lists().flat_map(|list| list.offsets().lengths()));
            let (field, values) = (Arc::clone(field), joined(&values)?);
            let lists = ListArray::try_new(field, offsets, values, validity(arrays))?;
            Ok(Arc::new(lists))
        }
        DataType::Struct(fields) if !fields.is_empty() => {
            let column = |index: usize| {
                let structs = arrays.iter().map(|array| array.as_struct());
                let columns: Vec<&dyn Array> = structs.map(|s| s.column(index).as_ref()).collect();
                joined(&columns)
            };
            let columns = (0..fields.len()).map(column).collect::<Result<_, _>>()?;
            let structs = StructArray::try_new(fields.clone(), columns, validity(arrays))?;
            Ok(Arc::new(structs))
        }
        _ => concat(arrays),
    }
}

/// Returns the values that a list array uses.
fn values_of(lists: &ListArray) -> ArrayRef {
    let offsets = lists.value_offsets();
    let (start, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
    lists.values().slice(start, end - start)
}

/// Concatenates elements in recycled memory if none of them is null.
fn elements<T>(arrays: &[&dyn Array]) -> Result<ArrayRef, ArrowError>
where
    T: ArrowPrimitiveType,
    T::Native: Recycled,
{
    if arrays.iter().any(|array| array.null_count() > 0) {
        return concat(arrays);
    }
    let parts = || {
        arrays
            .iter()
            .map(|array| array.as_primitive::<T>().values())
    };
    let mut elements = buffer_pool::take(parts().map(|part| part.len()).sum());
    let mut rest = elements.as_mut_slice();
    for part in parts() {
        let (place, after) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = after;
    }
    let values = buffer_pool::lend(elements);
    Ok(Arc::new(PrimitiveArray::<T>::try_new(values, None)?))
}

/// Returns the validity of concatenated arrays; `None` if no value is null.
fn validity(arrays: &[&dyn Array]) -> Option<NullBuffer> {
    if arrays.iter().all(|array| array.null_count() == 0) {
        return None;
    }
    let mut valid = BooleanBufferBuilder::new(arrays.iter().map(|array| array.len()).sum());
    for array in arrays {
        match array.nulls() {
            Some(nulls) => valid.append_buffer(nulls.inner()),
            None => valid.append_n(array.len(), true),
        }
    }
    Some(NullBuffer::new(valid.finish()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, UInt8Array};
    use arrow::datatypes::{Field, Fields};

    use super::*;

    const ROWS: usize = 6;

    /// Checks that slices of `array` are joined as by Arrow, in memory that is recycled.
    #[track_caller]
    fn check(array: &dyn Array, recycled: impl Fn(&dyn Array) -> bool) {
        let parts = [
            array.slice(1, 3),
            array.slice(0, 1),
            array.slice(2, ROWS - 2),
        ];
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        let together = concatenated(&parts).unwrap();
        together.to_data().validate_full().unwrap();
        assert_eq!(&together, &concat(&parts).unwrap());
        assert!(recycled(together.as_ref()));

        let array = array.slice(0, ROWS);
        for rows in [vec![1, 2, 3, 5], vec![5, 3, 3, 1]] {
            let rows = UInt64Array::from(rows);
            let some = taken(&array, &rows).unwrap();
            some.to_data().validate_full().unwrap();
            assert_eq!(&some, &take(&array, &rows, None).unwrap());
            assert!(recycled(some.as_ref()));
        }
    }

    fn is_lent<T: ArrowPrimitiveType>(values: &dyn Array) -> bool {
        buffer_pool::is_lent(values.as_primitive::<T>().values().inner())
    }

    fn bytes(len: usize) -> ArrayRef {
        Arc::new(UInt8Array::from_iter_values(
            (0..len).map(|i| (i % 251) as u8),
        ))
    }

    #[test]
    fn large_images_are_joined_in_recycled_memory() {
        let valid = NullBuffer::from(vec![true, true, false, true, true, true]);
        let size = SMALL / 4;
        let element = |data_type| Arc::new(Field::new("item", data_type, false));
        let reals =
            PrimitiveArray::<Float32Type>::from_iter_values((0..ROWS * size).map(|i| i as f32));
        for nulls in [None, Some(valid)] {
            let field = element(DataType::Float32);
            let values = Arc::new(reals.clone());
            let images = FixedSizeListArray::new(field, size as i32, values, nulls.clone());
            check(&images, |a| {
                is_lent::<Float32Type>(a.as_fixed_size_list().values())
            });

            let lengths = [5, size, 0, 2 * size, 7, size];
            let offsets = OffsetBuffer::from_lengths(lengths);
            let values = bytes(lengths.iter().sum());
            let data = ListArray::new(element(DataType::UInt8), offsets, values, nulls.clone());
            check(&data, |a| is_lent::<UInt8Type>(a.as_list::<i32>().values()));

            let shape = Arc::new(Int32Array::from_iter_values(0..3 * ROWS as i32));
            let shape = FixedSizeListArray::new(element(DataType::Int32), 3, shape, None);
            let data = ListArray::new(
                element(DataType::UInt8),
                data.offsets().clone(),
                Arc::clone(data.values()),
                None,
            );
            let columns: Vec<ArrayRef> = vec![Arc::new(data), Arc::new(shape)];
            let names = ["data", "shape"].into_iter().zip(&columns);
            let fields: Fields =
                { names.map(|(name, c)| Field::new(name, c.data_type().clone(), false)) }.collect();
            let ragged = StructArray::new(fields, columns, nulls);
            check(&ragged, |a| {
                is_lent::<UInt8Type>(a.as_struct().column(0).as_list::<i32>().values())
            });
        }
    }
}
