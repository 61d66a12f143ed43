//! Values, types and expressions of the generated queries, and their conversion to SQL.

/// An SQL value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Bool(bool),
    Text(String),
    List(Vec<Self>),
    /// A struct with the fields `a`, `b` and `l`.
    Struct(Vec<Self>),
}

/// The types of expressions: integers, conditions, strings, lists of integers, structs, lists of structs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Type {
    Int,
    Bool,
    Text,
    List,
    Struct,
    Structs,
}

pub(super) const TYPES: [Type; 6] = [
    Type::Int,
    Type::Bool,
    Type::Text,
    Type::List,
    Type::Struct,
    Type::Structs,
];
/// Names of the columns, one for each type: first the stored columns, then the columns that an
/// inner query computes.
pub(super) const NAMES: [[&str; 6]; 2] = [
    ["i", "p", "s", "l", "st", "sts"],
    ["i1", "p1", "s1", "l1", "st1", "sts1"],
];
pub(super) const FIELDS: [(&str, Type); 3] =
    [("a", Type::Int), ("b", Type::Text), ("l", Type::List)];

#[derive(Debug, Clone)]
pub(super) enum Expr {
    /// A column: its name in SQL, and its index in the oracle's row of values.
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
    pub(super) fn sql(&self) -> String {
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
}
