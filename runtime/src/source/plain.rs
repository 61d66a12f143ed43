//! The plain column types that sources show to users, which do not depend on the encoding in the
//! file.
//!
//! Dictionaries, run-end encoding, views and 64-bit offsets are only ways of storing values. A
//! source shows plain strings, bytes and lists instead, so that the meaning of a pipeline does not
//! depend on the program that wrote the file. Batches have a few MiB, so 32-bit offsets suffice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::Result;

use super::error::SourceError;

/// Returns the type that users see for a column of the stored type `stored`.
pub(crate) fn plain_type(stored: &DataType) -> DataType {
    match stored {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => DataType::List(plain_field(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(plain_field(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(field, sorted) => DataType::Map(plain_field(field), *sorted),
        other => other.clone(),
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    // Drops the field ids by which table formats number the columns of their Parquet files.
    let metadata: HashMap<_, _> = field
        .metadata()
        .iter()
        .filter(|(key, _)| key.as_str() != "PARQUET:field_id")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Arc::new(
        Field::new(
            field.name(),
            plain_type(field.data_type()),
            field.is_nullable(),
        )
        .with_metadata(metadata),
    )
}

/// Returns the schema that users see for a file with the schema `stored`. The metadata of the
/// schema as a whole is dropped; the metadata of fields is kept.
pub(crate) fn plain_schema(stored: &Schema) -> Schema {
    Schema::new(stored.fields().iter().map(plain_field).collect::<Fields>())
}

/// Merges the schemas of several files, each given as (relative path, plain schema). All schemas
/// must have the same columns in the same order. A column of the result is nullable if it is
/// nullable in any file.
pub(crate) fn merged_schema<'a>(
    format: &str,
    files: impl IntoIterator<Item = (&'a str, &'a Schema)>,
) -> Result<SchemaRef, SourceError> {
    let mut files = files.into_iter();
    let Some((first, schema)) = files.next() else {
        return Ok(Arc::new(Schema::empty()));
    };
    let mut merged: Vec<FieldRef> = schema.fields().to_vec();
    let mut names = HashSet::with_capacity(merged.len());
    for field in &merged {
        if !names.insert(field.name()) {
            return Err(SourceError::Schema(format!(
                "'{first}' has two columns '{}': rename one",
                field.name()
            )));
        }
    }
    let differ = |file: &str, what: String| {
        SourceError::Schema(format!(
            "the {format} files do not have the same columns: {what} ('{first}' was read first, then '{file}'); make them the same or read them as separate tables"
        ))
    };
    for (file, schema) in files {
        for (index, known) in merged.iter_mut().enumerate() {
            let Some(field) = schema.fields().get(index) else {
                return Err(differ(
                    file,
                    format!("'{file}' lacks the column '{}'", known.name()),
                ));
            };
            if field.name() != known.name() {
                return Err(differ(
                    file,
                    format!(
                        "column {} is '{}' and '{}'",
                        index + 1,
                        known.name(),
                        field.name()
                    ),
                ));
            }
            if !known.data_type().equals_datatype(field.data_type()) {
                return Err(differ(
                    file,
                    format!(
                        "column '{}' is {} and {}",
                        known.name(),
                        known.data_type(),
                        field.data_type()
                    ),
                ));
            }
            if let Some((one, other)) = other_names(known.data_type(), field.data_type()) {
                return Err(differ(
                    file,
                    format!(
                        "column '{}' has the field '{one}' and, in its place, '{other}'",
                        known.name()
                    ),
                ));
            }
            if field.is_nullable() && !known.is_nullable() {
                *known = Arc::new(known.as_ref().clone().with_nullable(true));
            }
        }
        if let Some(extra) = schema.fields().get(merged.len()) {
            return Err(differ(
                file,
                format!("'{file}' has the additional column '{}'", extra.name()),
            ));
        }
    }
    Ok(Arc::new(Schema::new(merged)))
}

/// Compares two types that are equal except for the names of nested fields. Returns the two names
/// of the first field of a struct or union, at any depth, whose name differs; `None` if no name
/// differs. Names must agree because users access such fields by name, whereas a cast matches
/// fields by position. The names of list items and map entries are not compared.
fn other_names<'a>(one: &'a DataType, other: &'a DataType) -> Option<(&'a str, &'a str)> {
    let within = |one: &'a FieldRef, other: &'a FieldRef| {
        if one.name() == other.name() {
            other_names(one.data_type(), other.data_type())
        } else {
            Some((one.name().as_str(), other.name().as_str()))
        }
    };
    match (one, other) {
        (DataType::Struct(one), DataType::Struct(other)) => {
            one.iter().zip(other).find_map(|(a, b)| within(a, b))
        }
        (DataType::Union(one, _), DataType::Union(other, _)) => {
            one.iter().find_map(|(id, field)| {
                let (_, named) = other.iter().find(|(of, _)| *of == id)?;
                within(field, named)
            })
        }
        (DataType::List(one), DataType::List(other))
        | (DataType::FixedSizeList(one, _), DataType::FixedSizeList(other, _)) => {
            other_names(one.data_type(), other.data_type())
        }
        (DataType::Map(one, _), DataType::Map(other, _)) => {
            let (DataType::Struct(one), DataType::Struct(other)) =
                (one.data_type(), other.data_type())
            else {
                return None;
            };
            let mut parts = one.iter().zip(other);
            parts.find_map(|(a, b)| other_names(a.data_type(), b.data_type()))
        }
        _ => None,
    }
}

/// Converts the stored columns of a batch of `rows` rows to the types of the plain `schema`.
pub(crate) fn plain_batch(
    schema: &SchemaRef,
    columns: &[ArrayRef],
    rows: usize,
) -> Result<RecordBatch> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let columns = columns
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(Arc::clone(column))
            } else {
                cast_with_options(column, field.data_type(), &strict)
            }
        })
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, DictionaryArray, StringArray, StringViewArray};
    use arrow::datatypes::Int8Type;

    use super::*;

    fn schema(fields: &[(&str, DataType, bool)]) -> Schema {
        Schema::new(
            fields
                .iter()
                .map(|(n, t, null)| Field::new(*n, t.clone(), *null))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn encodings_are_shown_as_plain_values() {
        let dictionary: DictionaryArray<Int8Type> = [Some("a"), None, Some("b"), Some("a")]
            .into_iter()
            .collect();
        let views = StringViewArray::from(vec![Some("x"), None, None, Some("a long, long string")]);
        let columns: Vec<ArrayRef> = vec![Arc::new(dictionary), Arc::new(views)];
        let stored = schema(&[
            ("d", columns[0].data_type().clone(), true),
            ("v", columns[1].data_type().clone(), true),
        ]);
        let plain = Arc::new(plain_schema(&stored));
        let batch = plain_batch(&plain, &columns, 4).unwrap();
        assert_eq!(
            batch.column(0).as_ref(),
            &StringArray::from(vec![Some("a"), None, Some("b"), Some("a")])
        );
        assert_eq!(batch.column(1).null_count(), 2);
    }

    #[test]
    fn nullability_is_merged_and_differences_are_named() {
        let a = schema(&[("x", DataType::Int64, false), ("y", DataType::Utf8, false)]);
        let b = schema(&[("x", DataType::Int64, true), ("y", DataType::Utf8, false)]);
        let merged = merged_schema("PARQUET", [("a", &a), ("b", &b)]).unwrap();
        assert!(merged.field(0).is_nullable() && !merged.field(1).is_nullable());
        let error = |other: &Schema| {
            merged_schema("PARQUET", [("a", &a), ("c", other)])
                .unwrap_err()
                .to_string()
        };
        let c = schema(&[("x", DataType::Int64, false), ("y", DataType::Int8, false)]);
        assert!(error(&c).contains("column 'y' is Utf8 and Int8 ('a' was read first, then 'c')"));
        let c = schema(&[("x", DataType::Int64, false)]);
        assert!(error(&c).contains("'c' lacks the column 'y'"));
        let c = schema(&[("y", DataType::Utf8, false), ("x", DataType::Int64, false)]);
        assert!(error(&c).contains("column 1 is 'x' and 'y'"));
    }

    #[test]
    fn fields_of_structs_have_the_same_names() {
        let point = |names: [&str; 2]| {
            let fields = names.map(|name| Field::new(name, DataType::Float64, true));
            DataType::Struct(fields.into_iter().collect())
        };
        let list = |item: &str, of| DataType::List(Arc::new(Field::new(item, of, true)));
        let map = |names: [&str; 3], of| {
            let key = Field::new(names[1], DataType::Utf8, false);
            let parts = vec![key, Field::new(names[2], of, true)];
            let entries = Field::new(names[0], DataType::Struct(parts.into()), false);
            DataType::Map(Arc::new(entries), false)
        };
        let merged = |one: DataType, other: DataType| {
            let (a, b) = (schema(&[("s", one, true)]), schema(&[("s", other, true)]));
            merged_schema("PARQUET", [("a", &a), ("b", &b)]).map_err(|error| error.to_string())
        };
        let (xy, place) = (point(["x", "y"]), point(["lat", "lon"]));
        let error = merged(xy.clone(), place.clone()).unwrap_err();
        assert!(
            error.contains(
                "column 's' has the field 'x' and, in its place, 'lat' ('a' was read first, then 'b')"
            ),
            "{error}"
        );
        let error = merged(xy.clone(), point(["y", "x"])).unwrap_err();
        assert!(
            error.contains("the field 'x' and, in its place, 'y'"),
            "{error}"
        );
        let (spark, arrow) = (["key_value", "k", "v"], ["entries", "keys", "values"]);
        for (one, other) in [
            (list("item", xy.clone()), list("item", place.clone())),
            (map(arrow, xy.clone()), map(arrow, place.clone())),
        ] {
            assert!(merged(one, other).is_err());
        }
        // The names of list items and map entries depend on the writer, and do not matter.
        merged(list("item", xy.clone()), list("element", xy.clone())).unwrap();
        merged(map(spark, xy.clone()), map(arrow, xy)).unwrap();
    }
}
