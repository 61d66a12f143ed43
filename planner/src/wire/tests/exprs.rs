//! Expressions that arrive as they were sent, and expressions that are refused.

use std::collections::{BTreeMap, HashMap};

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit, i256};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Alias, Case, Cast, Like, Placeholder, TryCast};
use datafusion::logical_expr::{Expr, Operator, binary_expr, cast, lit};

use super::*;
use crate::rows::fingerprint::expr_text;
use crate::rows::slot;
use crate::wire::frame::Reader;
use crate::wire::node::MAX_DEPTH;
use crate::wire::read_expr::read_exprs;
use crate::wire::write_expr::write_expr;

fn arrived(expr: &Expr) -> Result<Expr, WireError> {
    let mut bytes = Vec::new();
    write_expr(expr, &mut bytes)?;
    let mut exprs = read_exprs(Reader(&bytes), &[])?;
    assert_eq!(exprs.len(), 1);
    Ok(exprs.swap_remove(0))
}

#[track_caller]
fn arrives(expr: &Expr) {
    let found = arrived(expr).unwrap_or_else(|error| panic!("{expr}: {error}"));
    assert_eq!(&found, expr);
    assert_eq!(expr_text(&found).unwrap(), expr_text(expr).unwrap());
}

fn metadata(value: &str) -> FieldMetadata {
    FieldMetadata::new(BTreeMap::from([("k".to_owned(), value.to_owned())]))
}

#[test]
fn every_kind_of_expression_arrives() {
    let x = || Box::new(slot("x"));
    let field = Field::new("", DataType::Utf8, false)
        .with_metadata(HashMap::from([("k".to_owned(), "v".to_owned())]));
    let like = |escape, insensitive| Like::new(true, x(), Box::new(lit("a%")), escape, insensitive);
    let mut exprs = vec![
        slot("x"),
        slot("A \"name\".with .dots"),
        Expr::Not(x()),
        Expr::IsNull(x()),
        Expr::IsNotNull(x()),
        Expr::IsTrue(x()),
        Expr::IsFalse(x()),
        Expr::IsUnknown(x()),
        Expr::IsNotTrue(x()),
        Expr::IsNotFalse(x()),
        Expr::IsNotUnknown(x()),
        Expr::Negative(x()),
        slot("x").between(lit(1), lit(2)),
        slot("x").not_between(lit(1), lit(2)),
        slot("x").in_list(vec![lit(1), slot("y"), lit(3)], true),
        slot("x").in_list(vec![], false),
        cast(slot("x"), DataType::Float16),
        Expr::Cast(Cast::new_from_field(x(), Arc::new(field.clone()))),
        Expr::TryCast(TryCast::new_from_field(x(), Arc::new(field))),
        Expr::Like(like(None, false)),
        Expr::Like(like(Some('!'), true)),
        Expr::Like(like(Some('é'), false)),
        Expr::SimilarTo(like(Some('é'), true)),
        Expr::SimilarTo(like(None, false)),
        Expr::Case(Case::new(None, vec![(x(), x())], None)),
        Expr::Case(Case::new(
            Some(x()),
            vec![(x(), x()), (x(), x())],
            Some(x()),
        )),
        Expr::Literal(ScalarValue::from(1_i32), Some(metadata("v"))),
        Expr::Literal(ScalarValue::Float16(None), Some(metadata("v"))),
        Expr::Alias(Alias::new(slot("x"), None::<&str>, "b").with_metadata(Some(metadata("w")))),
        forebay_udfs::length_of(slot("x")),
    ];
    for op in [
        Operator::And,
        Operator::Minus,
        Operator::RegexNotIMatch,
        Operator::StringConcat,
        Operator::IsNotDistinctFrom,
    ] {
        exprs.push(binary_expr(
            slot("x"),
            op,
            binary_expr(slot("y"), op, slot("z")),
        ));
        exprs.push(binary_expr(
            binary_expr(slot("x"), op, slot("y")),
            op,
            slot("z"),
        ));
    }
    for expr in &exprs {
        arrives(expr);
        arrives(&Expr::Not(Box::new(expr.clone())));
    }
}

#[test]
fn every_type_of_literal_arrives() {
    let list = |values: &[ScalarValue], of: &DataType| {
        ScalarValue::List(ScalarValue::new_list_nullable(values, of))
    };
    let zone: Arc<str> = "Europe/Berlin".into();
    let ints = list(&[1_i64.into(), ScalarValue::Int64(None)], &DataType::Int64);
    let row = ScalarValue::try_from_array(
        &arrow::array::StructArray::from(vec![(
            Arc::new(Field::new("a", ints.data_type(), true)),
            ints.to_array().unwrap(),
        )]),
        0,
    )
    .unwrap();
    let fixed = DataType::new_fixed_size_list(DataType::Float32, 2, true);
    let fixed_value = ScalarValue::iter_to_array([1_f32.into(), 2_f32.into()]).unwrap();
    let fixed_value = arrow::array::FixedSizeListArray::new(
        Arc::new(Field::new_list_field(DataType::Float32, true)),
        2,
        fixed_value,
        None,
    );
    let values = [
        ScalarValue::Null,
        true.into(),
        ScalarValue::Int8(Some(-1)),
        ScalarValue::UInt8(Some(255)),
        u64::MAX.into(),
        f32::MIN_POSITIVE.into(),
        f64::NAN.into(),
        (-0.0).into(),
        ScalarValue::try_from_string("1.5".to_owned(), &DataType::Float16).unwrap(),
        "é\n".into(),
        ScalarValue::Utf8View(Some("v".to_owned())),
        ScalarValue::LargeUtf8(None),
        ScalarValue::Binary(Some(vec![0, 255])),
        ScalarValue::BinaryView(Some(vec![])),
        ScalarValue::FixedSizeBinary(2, Some(vec![1, 2])),
        ScalarValue::FixedSizeBinary(2, None),
        ScalarValue::Decimal32(Some(-5), 9, 2),
        ScalarValue::Decimal64(Some(5), 18, -2),
        ScalarValue::Decimal128(Some(i128::MIN), 38, 0),
        ScalarValue::Decimal256(Some(i256::MAX), 76, 3),
        ScalarValue::Decimal256(None, 76, 3),
        ScalarValue::Date32(Some(i32::MAX)),
        ScalarValue::Date64(Some(-1)),
        ScalarValue::Time32Second(Some(1)),
        ScalarValue::Time64Nanosecond(Some(1)),
        ScalarValue::Time64Microsecond(None),
        ScalarValue::TimestampNanosecond(Some(1), Some(Arc::clone(&zone))),
        ScalarValue::TimestampSecond(None, Some(zone)),
        ScalarValue::DurationMillisecond(Some(1)),
        ScalarValue::new_interval_mdn(1, -2, 3),
        ScalarValue::new_interval_dt(1, -2),
        ScalarValue::new_interval_ym(1, 2),
        ScalarValue::Dictionary(Box::new(DataType::Int8), Box::new("a".into())),
        list(&[], &DataType::Utf8),
        list(&[ints.clone(), ints.clone()], &ints.data_type()),
        list(std::slice::from_ref(&row), &row.data_type()),
        ScalarValue::LargeList(ScalarValue::new_large_list(&["a".into()], &DataType::Utf8)),
        ScalarValue::FixedSizeList(Arc::new(fixed_value)),
        ints,
        row,
    ];
    let types = [
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Duration(TimeUnit::Second),
        DataType::new_list(DataType::Int32, false),
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
        DataType::Struct(vec![Field::new("a", fixed.clone(), true)].into()),
        fixed,
    ];
    let nulls = types.iter().map(|of| ScalarValue::try_from(of).unwrap());
    for value in values.into_iter().chain(nulls) {
        arrives(&lit(value.clone()));
        arrives(&slot("x").eq(Expr::Literal(value, Some(metadata("é")))));
    }
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let qualified = Expr::Column(Column::new(Some("t"), "x"));
    let map = DataType::Map(
        Arc::new(Field::new(
            "entries",
            DataType::Struct(
                vec![
                    Field::new("key", DataType::Utf8, false),
                    Field::new("value", DataType::Utf8, true),
                ]
                .into(),
            ),
            false,
        )),
        false,
    );
    let wide = DataType::new_fixed_size_list(DataType::Int64, 1 << 20, true);
    for expr in [
        qualified,
        Expr::Placeholder(Placeholder::new_with_field("$1".to_owned(), None)),
        lit(ScalarValue::try_from(&map).unwrap()),
        lit(ScalarValue::try_from(&wide).unwrap()),
    ] {
        let refused = arrived(&expr);
        assert!(matches!(refused, Err(WireError::Unsupported(_))), "{expr}");
    }
}

#[test]
fn deep_expressions_arrive_or_are_refused() {
    let chain =
        |depth: usize, step: fn(Expr) -> Expr| (1..depth).fold(slot("x"), |expr, _| step(expr));
    let steps: [fn(Expr) -> Expr; 4] = [
        |expr| expr + lit(1),
        |expr| lit(1) - expr,
        |expr| slot("a").and(expr),
        |expr| Expr::Not(Box::new(expr)),
    ];
    for step in steps {
        arrives(&chain(MAX_DEPTH, step));
        let refused = arrived(&chain(MAX_DEPTH + 1, step))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("more than 384 nested operators"),
            "{refused}"
        );
        assert!(arrived(&chain(3_000, step)).is_err());
    }
    arrives(&lit("long".repeat(50_000)));
    assert!(arrived(&slot("long".repeat(50_000))).is_err());
    arrives(&slot("x").in_list((0..5_000).map(lit).collect(), false));
}
