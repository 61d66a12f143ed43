//! Comparison of a column's types in the inputs of a MIX.

use std::fmt;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use sqlparser::ast::Ident;

/// Compares the types of a column in two arms. Returns a hint to the author if the types hold
/// different values, and `None` if the types differ at most in Arrow's layouts.
pub(super) fn type_difference(name: &str, a: &Field, b: &Field) -> Option<String> {
    if a.extension_type_name() != b.extension_type_name()
        || a.extension_type_metadata() != b.extension_type_metadata()
    {
        return Some("give it the same shape, layout and element type in every arm".to_owned());
    }
    let (a, b) = (a.data_type(), b.data_type());
    if same_values(a, b) {
        return None;
    }
    let Some(common) = type_union_coercion(a, b) else {
        return Some("no type holds the values of both: give one of them another name".to_owned());
    };
    let column = quoted(name);
    Some(format!(
        "bring both to one type, such as {} AS {column}",
        cast_text(&column, &common)
    ))
}

/// True if two types hold the same values. Such types may still differ in the names and nullability
/// of list items, and in Arrow's layout of texts, lists and repeated values.
fn same_values(a: &DataType, b: &DataType) -> bool {
    use DataType as T;
    let is_text = |t: &T| matches!(t, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let is_bytes = |t: &T| matches!(t, T::Binary | T::LargeBinary | T::BinaryView);
    let item = |t: &T| match t {
        T::List(item) | T::LargeList(item) | T::ListView(item) | T::LargeListView(item) => {
            Some(item.data_type().clone())
        }
        _ => None,
    };
    match (a, b) {
        (T::Dictionary(_, a), b) => same_values(a, b),
        (a, T::Dictionary(_, b)) => same_values(a, b),
        (T::RunEndEncoded(_, a), b) => same_values(a.data_type(), b),
        (a, T::RunEndEncoded(_, b)) => same_values(a, b.data_type()),
        (T::FixedSizeList(a, m), T::FixedSizeList(b, n)) => {
            m == n && same_values(a.data_type(), b.data_type())
        }
        (T::Struct(a), T::Struct(b)) => {
            let pairs = a.iter().zip(b);
            let same = |(a, b): (&FieldRef, &FieldRef)| {
                a.name() == b.name() && same_values(a.data_type(), b.data_type())
            };
            a.len() == b.len() && pairs.into_iter().all(same)
        }
        (T::Map(a, _), T::Map(b, _)) => match (a.data_type(), b.data_type()) {
            (T::Struct(a), T::Struct(b)) => {
                let mut pairs = a.iter().zip(b);
                pairs.all(|(a, b)| same_values(a.data_type(), b.data_type()))
            }
            _ => false,
        },
        _ if is_text(a) || is_bytes(a) => is_text(a) && is_text(b) || is_bytes(a) && is_bytes(b),
        _ => match (item(a), item(b)) {
            (Some(a), Some(b)) => same_values(&a, &b),
            _ => a == b,
        },
    }
}

/// Formats a cast in SQL. A type without an SQL name is written with its Arrow name.
fn cast_text(value: &impl fmt::Display, to: &DataType) -> String {
    let word = match to {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Date32 => "DATE",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP",
        DataType::Decimal128(digits, scale) => {
            return format!("CAST({value} AS DECIMAL({digits}, {scale}))");
        }
        other => return format!("arrow_cast({value}, '{other}')"),
    };
    format!("CAST({value} AS {word})")
}

/// Quotes a name for SQL.
fn quoted(name: &str) -> Ident {
    let mut letters = name.chars();
    let begins = letters
        .next()
        .is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    if begins && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        Ident::new(name)
    } else {
        Ident::with_quote('"', name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn layouts_are_no_other_types_and_widths_and_zones_are() {
        let list = |item: &str, of: DataType| DataType::List(Arc::new(Field::new(item, of, true)));
        let large = DataType::LargeList(Arc::new(Field::new("element", DataType::Utf8View, false)));
        let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::LargeUtf8));
        let time = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
        let fixed = |size| DataType::new_fixed_size_list(DataType::Int8, size, true);
        for (a, b, same) in [
            (list("item", DataType::Utf8), large, true),
            (
                list("item", DataType::Int8),
                list("item", DataType::Int16),
                false,
            ),
            (words, DataType::Utf8, true),
            (DataType::Utf8, DataType::Binary, false),
            (time(None), time(Some("UTC")), false),
            (
                DataType::Decimal128(5, 2),
                DataType::Decimal128(6, 2),
                false,
            ),
            (fixed(2), fixed(3), false),
            (fixed(2), list("item", DataType::Int8), false),
        ] {
            assert_eq!(same_values(&a, &b), same, "{a}, {b}");
            assert_eq!(same_values(&b, &a), same, "{b}, {a}");
        }
    }
}
