//! The schema of a pipeline's batches, and the padding values of list columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{Result, plan_datafusion_err};

use crate::clauses::{Clauses, OnError, Pack, Pad};
use crate::key_columns::is_hidden;

/// Returns the schema of the batches of a pipeline whose rows have the schema `rows`.
///
/// * With `on_error = 'null'`, every column is nullable.
/// * `PACK c INTO n` makes `c` a list of `n` elements, followed by the columns `c_segment_ids` and
///   `c_positions` (lists of `n` `i32`). Every other column becomes a list with one value per
///   sequence of the pack.
/// * `PAD c` makes `c` a list without nulls (with `TO n`, a list of `n` elements), followed by the
///   column `c_length` (`i32`).
///
/// # Errors
/// Fails if a packed or padded column is not a list of numbers, or if its lists would have more
/// than `i32::MAX` elements.
pub fn schema(rows: &Schema, clauses: &Clauses) -> Result<SchemaRef> {
    let fields = rows.fields().iter().filter(|f| !is_hidden(f.name()));
    let fields: Vec<FieldRef> = match clauses.options.on_error {
        OnError::Null => fields
            .map(|f| Arc::new(f.as_ref().clone().with_nullable(true)))
            .collect(),
        _ => fields.map(Arc::clone).collect(),
    };
    if let Some(pack) = &clauses.pack {
        return Ok(Arc::new(Schema::new(packed(&fields, pack)?)));
    }
    if !clauses.pad.is_empty() {
        return Ok(Arc::new(Schema::new(padded(&fields, &clauses.pad)?)));
    }
    let metadata = rows.metadata().clone();
    Ok(Arc::new(Schema::new_with_metadata(fields, metadata)))
}

fn packed(rows: &[FieldRef], pack: &Pack) -> Result<Vec<FieldRef>> {
    let Pack { column, into } = pack;
    let n = i32::try_from(into.get()).map_err(|_| {
        plan_datafusion_err!(
            "PACK {column}: expected at most {} elements, found {into}",
            i32::MAX
        )
    })?;
    let of = |name: &str, item: FieldRef| -> FieldRef {
        Arc::new(Field::new(name, DataType::FixedSizeList(item, n), false))
    };
    let numbers = Arc::new(Field::new("item", DataType::Int32, false));
    let mut fields = Vec::with_capacity(rows.len() + 2);
    for field in rows {
        if field.name() == column {
            fields.push(of(column, element("PACK", field)?));
            fields.push(of(&format!("{column}_segment_ids"), Arc::clone(&numbers)));
            fields.push(of(&format!("{column}_positions"), Arc::clone(&numbers)));
        } else {
            let item = Arc::new(field.as_ref().clone().with_name("item"));
            fields.push(Arc::new(Field::new_list(field.name(), item, false)));
        }
    }
    Ok(fields)
}

fn padded(rows: &[FieldRef], pads: &[Pad]) -> Result<Vec<FieldRef>> {
    let mut fields = Vec::with_capacity(rows.len() + pads.len());
    for field in rows {
        let Some(pad) = pads.iter().find(|pad| pad.column == *field.name()) else {
            fields.push(Arc::clone(field));
            continue;
        };
        let item = element("PAD", field)?;
        let kind = match pad.to {
            Some(to) => DataType::FixedSizeList(
                item,
                i32::try_from(to.get()).map_err(|_| {
                    plan_datafusion_err!(
                        "PAD {} TO: expected at most {} elements, found {to}",
                        pad.column,
                        i32::MAX
                    )
                })?,
            ),
            None => DataType::List(item),
        };
        fields.push(Arc::new(Field::new(field.name(), kind, false)));
        let length = format!("{}_length", field.name());
        fields.push(Arc::new(Field::new(length, DataType::Int32, false)));
    }
    Ok(fields)
}

/// Returns the field of the elements of `field`, which must be a list of numbers. `clause` is the
/// name of the clause that needs such a list, for the error message.
///
/// # Errors
/// Fails if `field` is not a list of numbers.
pub fn element(clause: &str, field: &Field) -> Result<FieldRef> {
    match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if item.data_type().is_numeric() =>
        {
            Ok(Arc::new(item.as_ref().clone().with_name("item")))
        }
        other => Err(plan_datafusion_err!(
            "{clause} needs a list of numbers, but \"{}\" is {other}",
            field.name()
        )),
    }
}

/// Returns the padding value of `column`, as a one-element array of type `of`: the number in `PAD
/// column WITH number`, or 0 without `WITH`.
///
/// # Errors
/// Fails if the type `of` cannot hold the number.
pub fn filler(pads: &[Pad], column: &str, of: &DataType) -> Result<ArrayRef> {
    let pad = pads.iter().find(|pad| pad.column == column);
    let text = pad.and_then(|pad| pad.with.as_deref()).unwrap_or("0");
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let number = StringArray::from(vec![text]);
    cast_with_options(&number, of, &options).map_err(|_| {
        plan_datafusion_err!(
            "PAD {column} WITH {text}: the elements are {of}, which cannot hold this number"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: &str, of: DataType) -> Field {
        Field::new_list(name, Field::new("item", of, true), true)
    }

    fn pad(to: Option<u64>, with: Option<&str>) -> Pad {
        Pad {
            column: "ids".to_owned(),
            to: to.and_then(std::num::NonZeroU64::new),
            with: with.map(str::to_owned),
        }
    }

    #[test]
    fn columns_are_those_of_the_batches() {
        let rows = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            list("ids", DataType::Int32),
        ]);
        let names = |clauses: &Clauses| -> Vec<String> {
            let schema = schema(&rows, clauses).unwrap();
            let fields = schema.fields().iter();
            fields
                .map(|f| format!("{} {}", f.name(), f.data_type()))
                .collect()
        };
        let packs = Clauses {
            pack: Some(Pack {
                column: "ids".to_owned(),
                into: std::num::NonZeroU64::MIN,
            }),
            ..Clauses::default()
        };
        insta::assert_snapshot!(names(&packs).join("\n"), @r#"
    id List(non-null Int64)
    ids FixedSizeList(1 x Int32)
    ids_segment_ids FixedSizeList(1 x non-null Int32)
    ids_positions FixedSizeList(1 x non-null Int32)
    "#);
        let pads = Clauses {
            pad: vec![pad(Some(8), None)],
            ..Clauses::default()
        };
        insta::assert_snapshot!(names(&pads).join("\n"), @r#"
    id Int64
    ids FixedSizeList(8 x Int32)
    ids_length Int32
    "#);
        assert_eq!(names(&Clauses::default()).len(), 2);
    }

    #[test]
    fn what_fills_is_of_the_elements_type() {
        let of = |with, kind| filler(&[pad(None, with)], "ids", &kind);
        assert_eq!(of(None, DataType::Float32).unwrap().len(), 1);
        assert!(of(Some("-1"), DataType::Int8).is_ok());
        let error = of(Some("-1"), DataType::UInt8).unwrap_err().to_string();
        assert!(
            error.contains("PAD ids WITH -1: the elements are UInt8"),
            "{error}"
        );
        assert!(of(Some("1.5"), DataType::Int64).is_err());
    }
}
