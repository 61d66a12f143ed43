//! The stored table of the generated queries, as Arrow arrays and as plain values.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use arrow::ipc::writer::FileWriter;

use super::syntax::{FIELDS, NAMES, TYPES, Type, Value};
use crate::draw::Draw;
use crate::garbage::polluted;

/// Returns a random value of the type `of` for the stored table.
pub(super) fn stored(of: Type, draw: &mut Draw) -> Value {
    if draw.chance(35) {
        return Value::Null;
    }
    let items = |of: Type, draw: &mut Draw| {
        let count = draw.whole(0, 3);
        Value::List((0..count).map(|_| stored(of, draw)).collect())
    };
    match of {
        Type::Int => Value::Int(draw.whole(0, 4) as i64 - 1),
        Type::Bool => Value::Bool(draw.chance(50)),
        Type::Text => Value::Text(draw.pick(&["x", "ab", "Ab", "", "zoë"]).to_owned()),
        Type::List => items(Type::Int, draw),
        Type::Structs => items(Type::Struct, draw),
        Type::Struct => Value::Struct(FIELDS.iter().map(|(_, t)| stored(*t, draw)).collect()),
    }
}

fn fields() -> Fields {
    let data_type = |of: &Type| match of {
        Type::Int => DataType::Int64,
        Type::Text => DataType::Utf8,
        _ => DataType::new_list(DataType::Int64, true),
    };
    FIELDS
        .iter()
        .map(|(name, of)| Field::new(*name, data_type(of), true))
        .collect()
}

/// Returns the values as an Arrow array of the type `of`.
fn array(of: Type, values: &[Value]) -> ArrayRef {
    let nulls: NullBuffer = values.iter().map(|value| *value != Value::Null).collect();
    match of {
        Type::Int => {
            let int = |value: &Value| match value {
                Value::Int(number) => Some(*number),
                _ => None,
            };
            Arc::new(values.iter().map(int).collect::<Int64Array>())
        }
        Type::Bool => {
            let truth = |value: &Value| match value {
                Value::Bool(truth) => Some(*truth),
                _ => None,
            };
            Arc::new(values.iter().map(truth).collect::<BooleanArray>())
        }
        Type::Text => {
            let text = |value: &Value| match value {
                Value::Text(text) => Some(text.clone()),
                _ => None,
            };
            Arc::new(values.iter().map(text).collect::<StringArray>())
        }
        Type::List | Type::Structs => {
            let items = |value: &Value| match value {
                Value::List(items) => items.clone(),
                _ => Vec::new(),
            };
            let items: Vec<Vec<Value>> = values.iter().map(items).collect();
            let offsets = OffsetBuffer::from_lengths(items.iter().map(Vec::len));
            let inner = if of == Type::List {
                Type::Int
            } else {
                Type::Struct
            };
            let items = array(inner, &items.concat());
            let item = Arc::new(Field::new("item", items.data_type().clone(), true));
            Arc::new(ListArray::new(item, offsets, items, Some(nulls)))
        }
        Type::Struct => {
            let columns = FIELDS.iter().enumerate().map(|(at, (_, of))| {
                let field = |value: &Value| match value {
                    Value::Struct(fields) => fields[at].clone(),
                    _ => Value::Null,
                };
                array(*of, &values.iter().map(field).collect::<Vec<_>>())
            });
            Arc::new(StructArray::new(fields(), columns.collect(), Some(nulls)))
        }
    }
}

/// Returns the value in the row `row` of an output array.
pub(super) fn read(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Value::List((0..items.len()).map(|at| read(&items, at)).collect())
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            Value::Struct(columns.map(|column| read(column, row)).collect())
        }
        data_type if data_type.is_integer() => {
            let whole = cast(array, &DataType::Int64).unwrap();
            Value::Int(whole.as_primitive::<Int64Type>().value(row))
        }
        other => panic!("a value of type {other}"),
    }
}

pub(super) fn write(path: &Path, rows: &[Vec<Value>], draw: &mut Draw) {
    let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>();
    let mut columns = vec![array(Type::Int, &column(0))];
    for (at, of) in TYPES.iter().enumerate() {
        columns.push(polluted(&array(*of, &column(1 + at)), draw));
    }
    let names = std::iter::once("id").chain(NAMES[0]).zip(&columns);
    let fields = names.map(|(name, column)| Field::new(name, column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}
