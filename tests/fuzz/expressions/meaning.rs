//! The oracle: computes the value of an expression for a row from plain values.

use super::syntax::{Expr, Value};

impl Expr {
    pub(super) fn value(&self, row: &[Value]) -> Value {
        let both = |a: &Self, b: &Self| (a.value(row), b.value(row));
        let ints = |a: &Self, b: &Self, f: fn(i64, i64) -> i64| match both(a, b) {
            (Value::Int(a), Value::Int(b)) => Value::Int(f(a, b)),
            _ => Value::Null,
        };
        let branch = |branches: &[(Self, Self)], is: &dyn Fn(Value) -> bool| {
            let taken = branches.iter().find(|(when, _)| is(when.value(row)));
            taken.map(|(_, then)| then.value(row))
        };
        match self {
            Self::Column(_, at) => row[*at].clone(),
            Self::Constant(value) => value.clone(),
            Self::Field(of, field) => match of.value(row) {
                Value::Struct(fields) => fields[*field].clone(),
                _ => Value::Null,
            },
            Self::Element(of, at) => match of.value(row) {
                Value::List(items) => items.get(at - 1).cloned().unwrap_or(Value::Null),
                _ => Value::Null,
            },
            Self::Case(branches, other) => branch(branches, &|when| when == Value::Bool(true))
                .or_else(|| Some(other.as_ref()?.value(row)))
                .unwrap_or(Value::Null),
            Self::CaseOf(of, branches) => {
                let of = of.value(row);
                branch(branches, &|when| equal(&of, &when) == Value::Bool(true))
                    .unwrap_or(Value::Null)
            }
            Self::Nullif(a, b) => match both(a, b) {
                (a, b) if equal(&a, &b) == Value::Bool(true) => Value::Null,
                (a, _) => a,
            },
            Self::Coalesce(of) => {
                let mut values = of.iter().map(|expr| expr.value(row));
                values
                    .find(|value| *value != Value::Null)
                    .unwrap_or(Value::Null)
            }
            Self::Plus(a, b) => ints(a, b, |a, b| a + b),
            Self::Minus(a, b) => ints(a, b, |a, b| a - b),
            Self::Less(a, b) => match both(a, b) {
                (Value::Int(a), Value::Int(b)) => Value::Bool(a < b),
                (Value::Text(a), Value::Text(b)) => Value::Bool(a < b),
                _ => Value::Null,
            },
            Self::Equal(a, b) => {
                let (a, b) = both(a, b);
                equal(&a, &b)
            }
            Self::Distinct(a, b) => {
                let (a, b) = both(a, b);
                Value::Bool(a != b)
            }
            Self::And(a, b) => match both(a, b) {
                (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
                (Value::Bool(true), Value::Bool(true)) => Value::Bool(true),
                _ => Value::Null,
            },
            Self::Or(a, b) => match both(a, b) {
                (Value::Bool(true), _) | (_, Value::Bool(true)) => Value::Bool(true),
                (Value::Bool(false), Value::Bool(false)) => Value::Bool(false),
                _ => Value::Null,
            },
            Self::Not(a) => match a.value(row) {
                Value::Bool(truth) => Value::Bool(!truth),
                _ => Value::Null,
            },
            Self::IsNull(a) => Value::Bool(a.value(row) == Value::Null),
            Self::In(a, of) => {
                let a = a.value(row);
                let found = of.iter().map(|expr| equal(&a, &expr.value(row)));
                let found: Vec<Value> = found.collect();
                match () {
                    () if found.contains(&Value::Bool(true)) => Value::Bool(true),
                    () if found.contains(&Value::Null) => Value::Null,
                    () => Value::Bool(false),
                }
            }
            Self::Join(a, b) => match both(a, b) {
                (Value::Text(a), Value::Text(b)) => Value::Text(a + &b),
                _ => Value::Null,
            },
            Self::Upper(a) => match a.value(row) {
                Value::Text(text) => Value::Text(text.to_uppercase()),
                _ => Value::Null,
            },
            Self::Characters(a) => match a.value(row) {
                Value::Text(text) => Value::Int(text.chars().count() as i64),
                _ => Value::Null,
            },
            Self::Length(a) => match a.value(row) {
                Value::List(items) => Value::Int(items.len() as i64),
                _ => Value::Null,
            },
            // `array_append` treats a null list as an empty list.
            Self::Append(list, item) => match both(list, item) {
                (Value::List(mut items), item) => {
                    items.push(item);
                    Value::List(items)
                }
                (_, item) => Value::List(vec![item]),
            },
            Self::Prepend(item, list) => match both(item, list) {
                (item, Value::List(mut items)) => {
                    items.insert(0, item);
                    Value::List(items)
                }
                (item, _) => Value::List(vec![item]),
            },
            Self::MakeList(of) => Value::List(of.iter().map(|expr| expr.value(row)).collect()),
            Self::MakeStruct(of) => Value::Struct(of.iter().map(|expr| expr.value(row)).collect()),
        }
    }
}

/// Compares two values as SQL's `=` does. Within structs and lists, two nulls are equal, as in
/// DataFusion.
fn equal(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        _ => Value::Bool(a == b),
    }
}
