//! Sizes of the results of list functions, computed from the arguments.

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::arguments::{Arguments, count, null_bytes, value_bytes};

pub(super) fn array_repeat(args: &Arguments, row: usize) -> Result<u64> {
    let Some(times) = args.int(1, row) else {
        return Ok(0);
    };
    Ok(match count(times) {
        0 => 0,
        times => times.saturating_mul(args.bytes(0, row).max(1)),
    })
}

pub(super) fn array_resize(args: &Arguments, row: usize) -> Result<u64> {
    let (Some((list, at)), Some(size)) = (args.valid(0, row), args.int(1, row)) else {
        return Ok(0);
    };
    let Ok(size) = u64::try_from(size) else {
        return exec_err!("array_resize: the size {size} is negative");
    };
    let (length, item) = match list.data_type() {
        DataType::List(item) => (list.as_list::<i32>().value_length(at) as u64, item),
        DataType::LargeList(item) => (list.as_list::<i64>().value_length(at) as u64, item),
        _ => return Ok(0),
    };
    let fill = match args.arrays.len() {
        0..=2 => null_bytes(item.data_type()),
        _ => args.bytes(2, row),
    };
    let added = size.saturating_sub(length).saturating_mul(fill.max(1));
    Ok(added.saturating_add(value_bytes(list, at, 1)))
}

pub(super) fn array_to_string(args: &Arguments, row: usize) -> Result<u64> {
    let (Some((list, at)), Some(delimiter)) = (args.valid(0, row), args.text(1, row)) else {
        return Ok(0);
    };
    let null = args.text(2, row).map_or(0, str::len);
    let (elements, bytes) = elements(&list.slice(at, 1));
    Ok(bytes.saturating_add(elements.saturating_mul((delimiter.len() + null) as u64)))
}

/// Returns the number of elements of nested lists, at all depths, and the size, in bytes, of the
/// elements that are stored in dictionaries. A dictionary value that several elements share is
/// counted once for each of these elements.
fn elements(array: &dyn Array) -> (u64, u64) {
    let within = |values: &dyn Array| {
        let (inner, bytes) = elements(values);
        // The lists themselves are counted, too, because an empty or null list may be written as
        // text.
        (inner.saturating_add(array.len() as u64), bytes)
    };
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let [start, end] = ends(list.value_offsets());
            within(&list.values().slice(start, end - start))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let [start, end] = ends(list.value_offsets());
            within(&list.values().slice(start, end - start))
        }
        DataType::FixedSizeList(..) => within(array.as_fixed_size_list().values()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = dictionary.values();
            let keys = dictionary.normalized_keys();
            let valid = (0..array.len()).filter(|&row| dictionary.keys().is_valid(row));
            let sizes: Vec<u64> = (0..values.len())
                .map(|value| value_bytes(values, value, 1))
                .collect();
            let bytes = valid.filter_map(|row| sizes.get(keys[row])).sum();
            (array.len() as u64, bytes)
        }
        _ => (array.len() as u64, 0),
    }
}

fn ends<O: TryInto<usize> + Copy>(offsets: &[O]) -> [usize; 2] {
    [offsets.first(), offsets.last()]
        .map(|end| end.and_then(|&end| end.try_into().ok()).unwrap_or(0))
}
