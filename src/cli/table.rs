//! Record batches as text tables. Bytes, tensors, and long lists and texts are abbreviated.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches_with_options;

use super::units;

/// Maximum number of characters that are shown of a value; further characters are cut off.
const MAX_CHARACTERS: usize = 60;
/// Maximum number of elements of a list whose elements are shown. Of a longer list, only the length
/// is shown.
const MAX_LIST_VALUES: usize = 12;
/// Maximum size, in bytes, of a binary value whose bytes are shown. Of a larger value, only the
/// size is shown.
const MAX_BINARY: usize = 16;

/// Formats batches as one table. At most `max_rows` rows are shown, followed by the total number of
/// rows.
pub(crate) fn format(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    max_rows: usize,
) -> Result<String, ArrowError> {
    let total: usize = batches.iter().map(RecordBatch::num_rows).sum();
    // The header appears even if there are no rows.
    let mut shown = vec![abbreviate(&RecordBatch::new_empty(SchemaRef::clone(
        schema,
    )))?];
    let mut left = max_rows;
    for batch in batches {
        let batch = batch.slice(0, batch.num_rows().min(left));
        left -= batch.num_rows();
        shown.push(abbreviate(&batch)?);
    }
    let options = FormatOptions::default().with_null("NULL");
    let mut text = pretty_format_batches_with_options(&shown, &options)?.to_string();
    text.push('\n');
    let rows = units::counted(total as u64, "row", "rows");
    text.push_str(&if total > max_rows {
        format!("({rows}, the first {max_rows} shown)")
    } else {
        format!("({rows})")
    });
    Ok(text)
}

/// Aligns rows of cells below their headings, without a frame.
pub(crate) fn aligned<const N: usize>(header: &[String; N], rows: Vec<[String; N]>) -> String {
    let mut text = String::new();
    let lines: Vec<&[String; N]> = std::iter::once(header).chain(&rows).collect();
    for line in &lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = lines.iter().map(|line| line[column].chars().count()).max();
            let width = width.unwrap_or(0);
            format!("{cell:width$}")
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the name of a column's type for display: `Int32`, `tensor 224x224x3 Float32`.
pub(crate) fn type_name(field: &Field) -> String {
    let element = |data: &DataType| match data {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            item.data_type().to_string()
        }
        other => other.to_string(),
    };
    let metadata = field
        .extension_type_metadata()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
        .unwrap_or_default();
    let texts = |key: &str| -> Vec<String> {
        let values = metadata[key]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        values
            .iter()
            .map(|v| match v {
                serde_json::Value::Number(number) => number.to_string(),
                serde_json::Value::String(text) => text.clone(),
                _ => "?".to_owned(),
            })
            .collect()
    };
    let names = texts("dim_names");
    let order = if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(","))
    };
    match (field.extension_type_name(), field.data_type()) {
        (Some("arrow.fixed_shape_tensor"), data) => {
            format!(
                "tensor {} {}{order}",
                texts("shape").join("x"),
                element(data)
            )
        }
        (Some("arrow.variable_shape_tensor"), DataType::Struct(fields)) => {
            let shape = match metadata["uniform_shape"].as_array() {
                Some(_) => texts("uniform_shape").join("x"),
                None => vec!["?"; names.len().max(1)].join("x"),
            };
            let element = fields.find("data").map(|(_, f)| element(f.data_type()));
            format!("tensor {shape} {}{order}", element.unwrap_or_default())
        }
        (_, data) => data.to_string(),
    }
}

fn abbreviate(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let mut fields: Vec<FieldRef> = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let texts = texts(field, column)?;
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(StringArray::from(texts)));
    }
    if columns.is_empty() {
        return Ok(batch.clone());
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn texts(field: &Field, column: &ArrayRef) -> Result<Vec<Option<String>>, ArrowError> {
    let options = FormatOptions::default();
    // Values are formatted one by one, and only if their text is shown: the text of a tensor may
    // have a million numbers.
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let tensor = field
        .extension_type_name()
        .is_some_and(|name| name.ends_with("_shape_tensor"));
    (0..column.len())
        .map(|row| {
            if column.is_null(row) {
                return Ok(None);
            }
            if tensor {
                return Ok(Some(tensor_text(field, column, row)));
            }
            if let Some(bytes) = binary_length(column, row).filter(|&bytes| bytes > MAX_BINARY) {
                return Ok(Some(format!("<{}>", units::bytes(bytes as u64))));
            }
            if let Some(values) = list_length(column, row).filter(|&n| n > MAX_LIST_VALUES) {
                return Ok(Some(format!("<{} values>", units::count(values as u64))));
            }
            let text = formatter.value(row).try_to_string()?;
            Ok(Some(match text.char_indices().nth(MAX_CHARACTERS) {
                Some((end, _)) => format!("{}..", &text[..end]),
                None => text,
            }))
        })
        .collect()
}

fn tensor_text(field: &Field, column: &ArrayRef, row: usize) -> String {
    let Some(parts) = column.as_struct_opt() else {
        return format!("<{}>", type_name(field));
    };
    // Each row of a variable-shape tensor has its own shape.
    let shape = parts
        .column_by_name("shape")
        .and_then(|c| c.as_fixed_size_list_opt());
    let text = shape.and_then(|list| {
        let dims = list.value(row);
        let dims = dims.as_primitive_opt::<arrow::datatypes::Int32Type>()?;
        Some(
            dims.values()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("x"),
        )
    });
    let element = match parts.column_by_name("data").map(|data| data.data_type()) {
        Some(DataType::List(item)) => item.data_type().to_string(),
        _ => String::new(),
    };
    format!("<tensor {} {element}>", text.unwrap_or_default())
}

fn binary_length(column: &ArrayRef, row: usize) -> Option<usize> {
    match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>().value(row).len()),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value(row).len()),
        DataType::BinaryView => Some(column.as_binary_view().value(row).len()),
        DataType::FixedSizeBinary(length) => usize::try_from(*length).ok(),
        _ => None,
    }
}

fn list_length(column: &ArrayRef, row: usize) -> Option<usize> {
    match column.data_type() {
        DataType::List(_) => Some(column.as_list::<i32>().value_length(row) as usize),
        DataType::LargeList(_) => Some(column.as_list::<i64>().value_length(row) as usize),
        DataType::FixedSizeList(_, length) => usize::try_from(*length).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::array::{BinaryArray, FixedSizeListArray, Float32Array, Int32Array};

    use super::*;

    #[test]
    fn columns_stand_below_their_headings() {
        let header = ["a".to_owned(), "bb".to_owned()];
        let rows = vec![["long".to_owned(), "x".to_owned()]];
        assert_eq!(aligned(&header, rows), "a     bb\nlong  x\n");
    }

    #[test]
    fn long_values_are_abbreviated() {
        let pixels = FixedSizeListArray::new(
            Arc::new(Field::new("item", DataType::Float32, false)),
            24,
            Arc::new(Float32Array::from(vec![0.5; 48])),
            None,
        );
        let tensor =
            Field::new("pixels", pixels.data_type().clone(), false).with_metadata(HashMap::from([
                (
                    "ARROW:extension:name".to_owned(),
                    "arrow.fixed_shape_tensor".to_owned(),
                ),
                (
                    "ARROW:extension:metadata".to_owned(),
                    r#"{"shape":[2,4,3],"dim_names":["H","W","C"]}"#.to_owned(),
                ),
            ]));
        let long = vec![7_u8; 12_345];
        let schema = Schema::new(vec![
            Field::new("label", DataType::Int32, true),
            Field::new("image", DataType::Binary, false),
            Field::new("text", DataType::Utf8, false),
            tensor.clone(),
        ]);
        let batch = RecordBatch::try_new(
            Arc::new(schema),
            vec![
                Arc::new(Int32Array::from(vec![Some(3), None])),
                Arc::new(BinaryArray::from_vec(vec![long.as_slice(), &[1, 2]])),
                Arc::new(StringArray::from(vec![
                    "\u{e4}".repeat(90),
                    "short".to_owned(),
                ])),
                Arc::new(pixels),
            ],
        )
        .unwrap();
        let text = format(&batch.schema(), std::slice::from_ref(&batch), 10).unwrap();
        for part in [
            "<12.3 kB>",
            "0102",
            "<tensor 2x4x3 Float32 (H,W,C)>",
            "short",
            "NULL",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.contains(&format!("{}..", "\u{e4}".repeat(60))) && text.ends_with("(2 rows)"));
        let first = format(&batch.schema(), std::slice::from_ref(&batch), 1).unwrap();
        assert!(first.ends_with("(2 rows, the first 1 shown)") && !first.contains("short"));
        assert_eq!(type_name(&tensor), "tensor 2x4x3 Float32 (H,W,C)");
    }
}
