//! Random SQL expressions over structs, lists and nulls, against an oracle of plain values that shares no code with the
//! engine. The stored columns hold garbage under their nulls, and every query runs optimised and as written.
//!
//! `FOREBAY_FUZZ_CASES` is the number of queries, instead of 12; `FOREBAY_FUZZ_SEED` runs the one of this seed.

use std::fmt::Write;
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
use forebay::{RunConfig, Session};

use crate::common::batches;
use crate::draw::Draw;
use crate::garbage::polluted;

const ROWS: usize = 17;
/// Output columns of a query.
const COLUMNS: usize = 6;
/// Deepest expression.
const DEPTH: u32 = 3;

/// A value as SQL has it.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Int(i64),
    Bool(bool),
    Text(String),
    List(Vec<Self>),
    /// Fields `a`, `b` and `l`.
    Struct(Vec<Self>),
}

/// The types of expressions: whole numbers, conditions, texts, lists of numbers, structs, lists of structs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Type {
    Int,
    Bool,
    Text,
    List,
    Struct,
    Structs,
}

const TYPES: [Type; 6] = [
    Type::Int,
    Type::Bool,
    Type::Text,
    Type::List,
    Type::Struct,
    Type::Structs,
];
/// The stored column of each type, and the one that an inner query computes.
const NAMES: [[&str; 6]; 2] = [
    ["i", "p", "s", "l", "st", "sts"],
    ["i1", "p1", "s1", "l1", "st1", "sts1"],
];
const FIELDS: [(&str, Type); 3] = [("a", Type::Int), ("b", Type::Text), ("l", Type::List)];

#[derive(Debug, Clone)]
enum Expr {
    /// A column, as a place in the row.
    Column(&'static str, usize),
    Constant(Value),
    Field(Box<Self>, usize),
    Element(Box<Self>, usize),
    Case(Vec<(Self, Self)>, Option<Box<Self>>),
    CaseOf(Box<Self>, Vec<(Self, Self)>),
    Nullif(Box<Self>, Box<Self>),
    Coalesce(Vec<Self>),
    Plus(Box<Self>, Box<Self>),
    Minus(Box<Self>, Box<Self>),
    Less(Box<Self>, Box<Self>),
    Equal(Box<Self>, Box<Self>),
    Distinct(Box<Self>, Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    IsNull(Box<Self>),
    In(Box<Self>, Vec<Self>),
    Join(Box<Self>, Box<Self>),
    Upper(Box<Self>),
    Characters(Box<Self>),
    Length(Box<Self>),
    Append(Box<Self>, Box<Self>),
    Prepend(Box<Self>, Box<Self>),
    MakeList(Vec<Self>),
    MakeStruct(Vec<Self>),
}

impl Expr {
    fn sql(&self) -> String {
        let all = |exprs: &[Self]| exprs.iter().map(Self::sql).collect::<Vec<_>>().join(", ");
        let whens = |whens: &[(Self, Self)]| {
            let when =
                |(when, then): &(Self, Self)| format!(" WHEN {} THEN {}", when.sql(), then.sql());
            whens.iter().map(when).collect::<String>()
        };
        match self {
            Self::Column(name, _) => (*name).to_owned(),
            Self::Constant(value) => match value {
                Value::Int(number) => format!("({number})"),
                Value::Bool(truth) => truth.to_string(),
                Value::Text(text) => format!("'{text}'"),
                Value::Null => "CAST(NULL AS BIGINT)".to_owned(),
                other => panic!("no constant of {other:?}"),
            },
            Self::Field(of, field) => format!("({})['{}']", of.sql(), FIELDS[*field].0),
            Self::Element(of, at) => format!("({})[{at}]", of.sql()),
            Self::Case(branches, other) => {
                let other = other.as_ref().map(|other| format!(" ELSE {}", other.sql()));
                format!("CASE{}{} END", whens(branches), other.unwrap_or_default())
            }
            Self::CaseOf(of, branches) => format!("CASE {}{} END", of.sql(), whens(branches)),
            Self::Nullif(a, b) => format!("nullif({}, {})", a.sql(), b.sql()),
            Self::Coalesce(of) => format!("coalesce({})", all(of)),
            Self::Plus(a, b) => format!("({} + {})", a.sql(), b.sql()),
            Self::Minus(a, b) => format!("({} - {})", a.sql(), b.sql()),
            Self::Less(a, b) => format!("({} < {})", a.sql(), b.sql()),
            Self::Equal(a, b) => format!("({} = {})", a.sql(), b.sql()),
            Self::Distinct(a, b) => format!("({} IS DISTINCT FROM {})", a.sql(), b.sql()),
            Self::And(a, b) => format!("({} AND {})", a.sql(), b.sql()),
            Self::Or(a, b) => format!("({} OR {})", a.sql(), b.sql()),
            Self::Not(a) => format!("(NOT {})", a.sql()),
            Self::IsNull(a) => format!("({} IS NULL)", a.sql()),
            Self::In(a, of) => format!("({} IN ({}))", a.sql(), all(of)),
            Self::Join(a, b) => format!("({} || {})", a.sql(), b.sql()),
            Self::Upper(a) => format!("upper({})", a.sql()),
            Self::Characters(a) => format!("CAST(character_length({}) AS BIGINT)", a.sql()),
            Self::Length(a) => format!("CAST(array_length({}) AS BIGINT)", a.sql()),
            Self::Append(list, item) => format!("array_append({}, {})", list.sql(), item.sql()),
            Self::Prepend(item, list) => format!("array_prepend({}, {})", item.sql(), list.sql()),
            Self::MakeList(of) => format!("make_array({})", all(of)),
            Self::MakeStruct(of) => {
                let fields = FIELDS
                    .iter()
                    .zip(of)
                    .map(|((name, _), value)| format!("'{name}', {}", value.sql()));
                format!("named_struct({})", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn value(&self, row: &[Value]) -> Value {
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
            // A null list is taken for an empty one.
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

/// SQL's `=`. Nulls within two values are alike, as DataFusion has it.
fn equal(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        _ => Value::Bool(a == b),
    }
}

/// Makes expressions over the columns of a level: of the table, or of an inner query too.
struct Maker<'a> {
    draw: &'a mut Draw,
    levels: usize,
}

impl Maker<'_> {
    fn boxed(&mut self, of: Type, depth: u32) -> Box<Expr> {
        Box::new(self.expr(of, depth))
    }

    fn several(&mut self, of: Type, depth: u32) -> Vec<Expr> {
        let count = self.draw.whole(1, 3);
        (0..count).map(|_| self.expr(of, depth)).collect()
    }

    fn leaf(&mut self, of: Type) -> Expr {
        let texts = ["x", "ab", "Ab", ""];
        match of {
            Type::Int if self.draw.chance(30) => {
                Expr::Constant(Value::Int(self.draw.whole(0, 4) as i64 - 1))
            }
            Type::Text if self.draw.chance(30) => {
                Expr::Constant(Value::Text(self.draw.pick(&texts).to_owned()))
            }
            Type::Bool if self.draw.chance(20) => Expr::Constant(Value::Bool(self.draw.chance(50))),
            _ => {
                let level = self.draw.whole(0, self.levels as u64 - 1) as usize;
                let at = TYPES.iter().position(|t| *t == of).unwrap();
                Expr::Column(NAMES[level][at], 1 + level * TYPES.len() + at)
            }
        }
    }

    fn expr(&mut self, of: Type, depth: u32) -> Expr {
        if depth == 0 || self.draw.chance(15) {
            return self.leaf(of);
        }
        let down = depth - 1;
        match self.draw.whole(0, 9) {
            0 => {
                let branches = (0..self.draw.whole(1, 2))
                    .map(|_| (self.expr(Type::Bool, down), self.expr(of, down)))
                    .collect();
                let other = self.draw.chance(50).then(|| self.boxed(of, down));
                Expr::Case(branches, other)
            }
            1 => Expr::Nullif(self.boxed(of, down), self.boxed(of, down)),
            2 => Expr::Coalesce(self.several(of, down)),
            3 => {
                let of_branch = self.draw.pick(&[Type::Int, Type::Text]);
                let branches = (0..self.draw.whole(1, 2))
                    .map(|_| (self.expr(of_branch, down), self.expr(of, down)))
                    .collect();
                Expr::CaseOf(self.boxed(of_branch, down), branches)
            }
            4 if of == Type::Struct => Expr::Element(
                self.boxed(Type::Structs, down),
                self.draw.whole(1, 3) as usize,
            ),
            4 | 5 if FIELDS.iter().any(|(_, t)| *t == of) => {
                let field = FIELDS.iter().position(|(_, t)| *t == of).unwrap();
                Expr::Field(self.boxed(Type::Struct, down), field)
            }
            _ => self.own(of, down),
        }
    }

    /// An operator whose values are of this type alone.
    fn own(&mut self, of: Type, down: u32) -> Expr {
        let pick = self.draw.whole(0, 6);
        match (of, pick) {
            (Type::Int, 0 | 1) => Expr::Plus(self.boxed(of, down), self.boxed(of, down)),
            (Type::Int, 2) => Expr::Minus(self.boxed(of, down), self.boxed(of, down)),
            (Type::Int, 3) => Expr::Characters(self.boxed(Type::Text, down)),
            (Type::Int, 4) => Expr::Length(self.boxed(Type::List, down)),
            (Type::Int, _) => {
                Expr::Element(self.boxed(Type::List, down), self.draw.whole(1, 4) as usize)
            }
            (Type::Text, 0..=3) => Expr::Join(self.boxed(of, down), self.boxed(of, down)),
            (Type::Text, _) => Expr::Upper(self.boxed(of, down)),
            (Type::Bool, 0) => Expr::And(self.boxed(of, down), self.boxed(of, down)),
            (Type::Bool, 1) => Expr::Or(self.boxed(of, down), self.boxed(of, down)),
            (Type::Bool, 2) => Expr::Not(self.boxed(of, down)),
            (Type::Bool, 3) => {
                let kind = self.draw.pick(&TYPES);
                Expr::IsNull(self.boxed(kind, down))
            }
            (Type::Bool, pick) => {
                let kind = self.draw.pick(&[Type::Int, Type::Text]);
                let (a, b) = (self.boxed(kind, down), self.boxed(kind, down));
                match pick {
                    4 => Expr::Less(a, b),
                    5 if self.draw.chance(50) => Expr::Distinct(a, b),
                    5 => Expr::Equal(a, b),
                    _ => Expr::In(a, self.several(kind, down)),
                }
            }
            (Type::List, 0..=2) => Expr::Append(self.boxed(of, down), self.boxed(Type::Int, down)),
            (Type::List, 3 | 4) => Expr::Prepend(self.boxed(Type::Int, down), self.boxed(of, down)),
            (Type::List, _) => Expr::MakeList(self.several(Type::Int, down)),
            (Type::Struct, 0..=3) => {
                Expr::MakeStruct(FIELDS.iter().map(|(_, t)| self.expr(*t, down)).collect())
            }
            _ => self.leaf(of),
        }
    }
}

/// A stored value.
fn stored(of: Type, draw: &mut Draw) -> Value {
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

/// An array of values.
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

/// The value in a row of an array that came out.
fn read(array: &ArrayRef, row: usize) -> Value {
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

fn write(path: &Path, rows: &[Vec<Value>], draw: &mut Draw) {
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

/// Runs a query, and compares what comes out with what the oracle says.
async fn check(seed: u64) -> Result<(), String> {
    let draw = &mut Draw::new(seed);
    let mut rows: Vec<Vec<Value>> = (0..ROWS)
        .map(|id| {
            let id = std::iter::once(Value::Int(id as i64));
            id.chain(TYPES.iter().map(|of| stored(*of, draw))).collect()
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, &rows, draw);
    let is_nested = draw.chance(60);
    let mut from = "t".to_owned();
    if is_nested {
        let mut maker = Maker { draw, levels: 1 };
        let inner = TYPES.map(|of| maker.expr(of, 2));
        let mut list = String::new();
        for (expr, name) in inner.iter().zip(NAMES[1]) {
            let _ = write!(list, ", {} AS {name}", expr.sql());
        }
        from = format!("(SELECT *{list} FROM t) AS u");
        for row in &mut rows {
            let more: Vec<Value> = inner.iter().map(|expr| expr.value(row)).collect();
            row.extend(more);
        }
    }
    let levels = 1 + usize::from(is_nested);
    let mut maker = Maker { draw, levels };
    let columns = (0..COLUMNS).map(|_| {
        let of = maker.draw.pick(&TYPES);
        maker.expr(of, DEPTH)
    });
    let columns: Vec<Expr> = columns.collect();
    let filter = maker.draw.chance(50).then(|| maker.expr(Type::Bool, DEPTH));
    let mut sql = "SELECT id".to_owned();
    for (at, column) in columns.iter().enumerate() {
        let _ = write!(sql, ",\n  {} AS c{at}", column.sql());
    }
    let _ = write!(sql, "\nFROM {from}");
    if let Some(filter) = &filter {
        let _ = write!(sql, "\nWHERE {}", filter.sql());
        rows.retain(|row| filter.value(row) == Value::Bool(true));
    }
    for optimize in ["default", "none"] {
        let session = Session::new();
        let table = format!(
            "CREATE EXTERNAL TABLE t STORED AS ARROW LOCATION '{}'",
            path.display()
        );
        let pipeline = format!("CREATE PIPELINE p AS {sql} OPTIONS (optimize = '{optimize}')");
        let wrong = |what: String| format!("seed {seed}, optimize = '{optimize}': {what}\n{sql}");
        session
            .execute(&format!("{table}; {pipeline}"))
            .await
            .map_err(|e| wrong(e.to_string()))?;
        let batches = batches(&session, "p", RunConfig::default()).await;
        let batches = batches.map_err(|e| wrong(e.to_string()))?;
        let mut expected = rows.iter();
        for batch in batches.iter().map(|batch| &batch.batch) {
            for at in 0..batch.num_rows() {
                let id = read(batch.column(0), at);
                let Some(row) = expected.next().filter(|row| row[0] == id) else {
                    return Err(wrong(format!("row {id:?} should not be there")));
                };
                for (number, column) in columns.iter().enumerate() {
                    let (found, want) = (read(batch.column(number + 1), at), column.value(row));
                    if found != want {
                        return Err(wrong(format!(
                            "c{number} of row {id:?}: {found:?}, not {want:?}, {row:?}"
                        )));
                    }
                }
            }
        }
        if let Some(row) = expected.next() {
            return Err(wrong(format!("row {:?} is not there", row[0])));
        }
    }
    Ok(())
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[tokio::test]
async fn expressions_mean_what_the_oracle_says() {
    let cases = number("FOREBAY_FUZZ_CASES").unwrap_or(12);
    let seeds = match number("FOREBAY_FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..cases,
    };
    let mut wrong = Vec::new();
    for seed in seeds {
        wrong.extend(check(seed).await.err());
        assert!(wrong.len() < 5, "{}", wrong.join("\n\n"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
