//! Variants of arrays that compare equal to the original, but have other data where no function may
//! read: under nulls, and in list elements that belong to no row.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, MapArray,
    StringArray, StructArray, UInt32Array, make_array, new_empty_array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{concat, interleave};
use arrow::datatypes::{DataType, Field, UInt32Type};

use super::draw::Draw;

/// Returns an array equal to `array`, but with other data under nulls and in list elements that
/// belong to no row.
pub(crate) fn polluted(array: &ArrayRef, draw: &mut Draw) -> ArrayRef {
    let nulls = array.nulls().cloned();
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    match array.data_type() {
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| {
                let dirt = arbitrary_values(field, array.len(), draw);
                let rows = (0..array.len()).map(|row| (usize::from(is_null(row)), row));
                let rows: Vec<(usize, usize)> = rows.collect();
                let mixed = interleave(&[column.as_ref(), dirt.as_ref()], &rows).unwrap();
                polluted(&mixed, draw)
            });
            let columns = columns.collect();
            Arc::new(StructArray::new(fields.clone(), columns, nulls))
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let (offsets, values) = scattered(list.offsets(), list.values(), item, is_null, draw);
            Arc::new(ListArray::new(Arc::clone(item), offsets, values, nulls))
        }
        DataType::Map(entry, ordered) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let (offsets, entries) = scattered(map.offsets(), &entries, entry, is_null, draw);
            let (entry, entries) = (Arc::clone(entry), entries.as_struct().clone());
            Arc::new(MapArray::new(entry, offsets, entries, nulls, *ordered))
        }
        DataType::FixedSizeList(item, size) => {
            let list = array.as_fixed_size_list();
            let width = *size as usize;
            let dirt = arbitrary_values(item, list.values().len(), draw);
            let rows = (0..list.values().len()).map(|at| (usize::from(is_null(at / width)), at));
            let rows: Vec<(usize, usize)> = rows.collect();
            let values = interleave(&[list.values().as_ref(), dirt.as_ref()], &rows).unwrap();
            let values = polluted(&values, draw);
            Arc::new(FixedSizeListArray::new(
                Arc::clone(item),
                *size,
                values,
                nulls,
            ))
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary::<UInt32Type>();
            let field = Field::new("value", dictionary.values().data_type().clone(), false);
            let dirt = arbitrary_values(&field, 2, draw);
            let values = concat(&[dictionary.values().as_ref(), dirt.as_ref()]).unwrap();
            let keys = dictionary.keys();
            let keys = (0..keys.len()).map(|row| {
                if is_null(row) {
                    draw.whole(0, values.len() as u64 - 1) as u32
                } else {
                    keys.value(row)
                }
            });
            let keys = UInt32Array::new(keys.collect::<Vec<_>>().into(), nulls.clone());
            let values = polluted(&values, draw);
            Arc::new(arrow::array::DictionaryArray::new(keys, values))
        }
        DataType::Null => Arc::clone(array),
        data_type => {
            // Replaces the values under nulls by arbitrary non-null values of the same type.
            let dirt = arbitrary_values(
                &Field::new("value", data_type.clone(), false),
                array.len(),
                draw,
            );
            let rows = (0..array.len()).map(|row| (usize::from(is_null(row)), row));
            let rows: Vec<(usize, usize)> = rows.collect();
            let whole = interleave(&[array.as_ref(), dirt.as_ref()], &rows).unwrap();
            let data = whole.to_data().into_builder().nulls(nulls).build().unwrap();
            make_array(data)
        }
    }
}

/// Returns the offsets and elements of an equal list array in which null rows have elements, and
/// some elements belong to no row.
fn scattered(
    offsets: &OffsetBuffer<i32>,
    values: &ArrayRef,
    item: &Field,
    is_null: impl Fn(usize) -> bool,
    draw: &mut Draw,
) -> (OffsetBuffer<i32>, ArrayRef) {
    let rows = offsets.len() - 1;
    let dirt = arbitrary_values(item, 3 * rows + 4, draw);
    let mut used = 0;
    let mut garbage = |picks: &mut Vec<(usize, usize)>, count: u64| {
        for _ in 0..count {
            picks.push((1, used % dirt.len()));
            used += 1;
        }
    };
    let mut picks = Vec::new();
    garbage(&mut picks, draw.whole(0, 2));
    let mut starts = vec![picks.len() as i32];
    for row in 0..rows {
        if is_null(row) {
            garbage(&mut picks, draw.whole(0, 3));
        } else {
            picks.extend((offsets[row]..offsets[row + 1]).map(|at| (0, at as usize)));
        }
        starts.push(picks.len() as i32);
    }
    garbage(&mut picks, draw.whole(0, 2));
    let values = if picks.is_empty() {
        new_empty_array(values.data_type())
    } else {
        interleave(&[values.as_ref(), dirt.as_ref()], &picks).unwrap()
    };
    let values = polluted(&values, draw);
    (OffsetBuffer::new(ScalarBuffer::from(starts)), values)
}

/// Returns `count` random non-null values of the type of `field`, including values on which
/// functions fail.
fn arbitrary_values(field: &Field, count: usize, draw: &mut Draw) -> ArrayRef {
    let data_type = field.data_type();
    let texts = [
        "",
        "garbage",
        "-1",
        "\u{7f}\u{1f600}",
        "9999999999999999999999",
    ];
    match data_type {
        DataType::Null => arrow::array::new_null_array(data_type, count),
        DataType::Boolean => Arc::new(
            (0..count)
                .map(|_| Some(draw.chance(50)))
                .collect::<BooleanArray>(),
        ),
        DataType::Utf8 => {
            let values = (0..count).map(|_| draw.pick(&texts));
            Arc::new(StringArray::from_iter_values(values))
        }
        DataType::Binary => {
            let bytes: [&[u8]; 4] = [b"", b"\xff\xfe", b"abc", b"\x00\x80"];
            let values = (0..count).map(|_| draw.pick(&bytes));
            Arc::new(BinaryArray::from_iter_values(values))
        }
        DataType::Struct(fields) => {
            let columns = fields
                .iter()
                .map(|field| arbitrary_values(field, count, draw))
                .collect();
            Arc::new(
                StructArray::try_new_with_length(fields.clone(), columns, None, count).unwrap(),
            )
        }
        DataType::List(item) => {
            let lengths: Vec<usize> = (0..count).map(|_| draw.whole(0, 3) as usize).collect();
            let values = arbitrary_values(item, lengths.iter().sum(), draw);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(Arc::clone(item), offsets, values, None))
        }
        DataType::Map(entry, ordered) => {
            let lengths = vec![1; count];
            let entries = arbitrary_values(entry, count, draw).as_struct().clone();
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(MapArray::new(
                Arc::clone(entry),
                offsets,
                entries,
                None,
                *ordered,
            ))
        }
        DataType::FixedSizeList(item, size) => {
            let values = arbitrary_values(item, count * *size as usize, draw);
            Arc::new(FixedSizeListArray::new(
                Arc::clone(item),
                *size,
                values,
                None,
            ))
        }
        DataType::Dictionary(_, values) => {
            let values = arbitrary_values(
                &Field::new("value", values.as_ref().clone(), false),
                3,
                draw,
            );
            let keys = UInt32Array::from_iter_values((0..count).map(|_| draw.whole(0, 2) as u32));
            Arc::new(arrow::array::DictionaryArray::new(keys, values))
        }
        primitive => {
            let width = primitive.primitive_width().unwrap();
            let mut bytes = Vec::with_capacity(width * count);
            for _ in 0..count {
                // Little-endian bytes of the minimum, of the maximum, of zero, or of a random
                // value.
                let kind = draw.whole(0, 3);
                for at in 0..width {
                    bytes.push(match kind {
                        0 if at + 1 == width => 0x80,
                        0 | 1 => 0,
                        2 if at + 1 == width => 0x7f,
                        2 => 0xff,
                        _ => draw.next() as u8,
                    });
                }
            }
            let data = arrow::array::ArrayData::builder(primitive.clone())
                .len(count)
                .add_buffer(Buffer::from_vec(bytes))
                .align_buffers(true)
                .build();
            make_array(data.unwrap())
        }
    }
}
