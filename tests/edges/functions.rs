//! Tests every function that SQL accepts: its value for a row depends on that row alone. The value
//! does not change if the data under nulls changes, or if the row is evaluated alone rather than
//! together with other rows.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    FixedSizeListArray, Float64Array, Int32Array, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray, Time64NanosecondArray, TimestampNanosecondArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, lit};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::ident;
use forebay_planner::catalog::Catalog;
use forebay_planner::rows::bind::Streams;
use forebay_runtime::fragment::compile::compile_expr;
use forebay_runtime::fragment::evaluate::evaluate;
use forebay_runtime::source::FileResolver;
use forebay_udfs::hash::hash_bytes;
use forebay_udfs::is_random;
use forebay_udfs::row::{ROW_COLUMN, RowColumn};
use forebay_udfs::tensor::{Dtype, ImageLayout, TensorType};

use crate::draw::Draw;
use crate::garbage::polluted;

/// Maximum number of random calls that are generated for each function and number of arguments, to
/// find valid ones.
const TRIES: usize = 150;
/// Maximum number of valid calls that are checked for each function and number of arguments.
const CALLS: usize = 3;

/// Calls of functions whose arguments are too specific to be found by chance.
const CALLS_BY_HAND: &[&str] = &[
    "array_has_all(l, CAST(fl AS BIGINT[]))",
    "array_has_any(ll, ll)",
    "array_sort(ls, 'DESC', 'NULLS LAST')",
    "date_part('day', ts)",
    "date_trunc('day', ts)",
    "get_field(st, 'a')",
    "make_time(i, u, 3)",
    "map(make_array(i), make_array(s))",
    "nvl(arrow_cast(dct, 'Utf8View'), 'x')",
    "to_char(ts, '%Y')",
    "to_time('12:30:00')",
    "array_replace(l, i, 7)",
    "array_replace_n(l, i, 7, 2)",
    "array_slice(l, 1, u)",
    "array_slice(l, 1, 3, 2)",
    "array_subtract(l, l)",
    "array_union(l, nullif(l, l))",
    "center_crop(px, 2, 2)",
    "crop(px, 0, 1, 2, 2)",
    "date_bin(INTERVAL '1 day', ts)",
    "decode(s, 'hex')",
    "digest(s, 'sha256')",
    "encode(bin, 'base64')",
    "gaussian_blur(px, 3, 0.5, 0.6)",
    "random_crop(px, 2, 2)",
    "random_int(0, 9)",
    "random_resized_crop(px, 2, 2)",
    "random_rotate(px, 20)",
    "resize(px, 2, 2)",
    "resize(decode_image(img), 2, 2)",
    "resize_shortest(px, 2)",
    "rotate(px, 90)",
];

/// Functions that this test cannot call: functions with lambdas, which Forebay's dialect does not
/// parse, and functions over the Arrow type `Union`.
const NEVER_CALLED: [&str; 6] = [
    "array_any_match",
    "array_filter",
    "array_first",
    "array_transform",
    "union_extract",
    "union_tag",
];

/// Expressions to check that are not function calls.
const EXPRESSIONS: &[&str] = &[
    "(CASE WHEN i > 2 THEN st END)['a']",
    "(CASE WHEN i > 2 THEN st END)['l']",
    "(CASE WHEN i > 2 THEN st ELSE nullif(st, st) END)['l'][1]",
    "nullif(st, st)['a']",
    "nullif(st, st)['b'] IS NULL",
    "coalesce(nullif(st, st), st)['l']",
    "array_append(nullif(l, l), 7)",
    "array_append(CASE WHEN b THEN l END, i)",
    "sts[1]['a']",
    "(CASE WHEN b THEN sts END)[1]['b']",
    "ll[1][1]",
    "l[1:2]",
    "m['x']",
    "(CASE WHEN b THEN m END)['x']",
    "st = nullif(st, st)",
    "l = nullif(l, ls)",
    "st IS DISTINCT FROM nullif(st, st)",
    "CAST(l AS VARCHAR[])",
    "CAST(ls AS BIGINT[])",
    "CAST(s AS BIGINT)",
    "TRY_CAST(s AS BIGINT)",
    "CAST(bin AS VARCHAR)",
    "CAST(ts AS DATE)",
    "CAST(f AS DECIMAL(5, 2))",
    "i / (i - 1)",
    "i % (i - 1)",
    "-i",
    "i + u",
    "dec * dec",
    "ts - INTERVAL '1 day'",
    "d + 3",
    "b AND i / (i - 1) > 0",
    "NOT b OR f < 1.5",
    "i BETWEEN u AND 4",
    "i IN (1, 2, NULL)",
    "s IN ('a', dct)",
    "s LIKE 'a%'",
    "s LIKE dct",
    "s ~ '[0-9]+'",
    "s || dct",
    "s IS NULL",
    "extract(year FROM ts)",
    "CASE s WHEN 'a' THEN l WHEN '12' THEN nullif(l, l) END",
];

fn nulls(draw: &mut Draw, rows: usize) -> NullBuffer {
    (0..rows).map(|_| !draw.chance(35)).collect()
}

/// Returns `count` rows with columns of many types, and with nulls at every level of nesting.
fn rows(count: usize) -> RecordBatch {
    let draw = &mut Draw::new(7);
    let some = |draw: &mut Draw, from: u64, to: u64| -> Vec<Option<i64>> {
        let value = |draw: &mut Draw| (!draw.chance(35)).then(|| draw.whole(from, to) as i64);
        (0..count).map(|_| value(draw)).collect()
    };
    let texts = [
        "a",
        "12",
        "2026-01-02",
        "a,b",
        "",
        "Zoë",
        "2026-01-02T03:04:05Z",
        "{\"x\": 1}",
    ];
    let text = |draw: &mut Draw, rows: usize| -> StringArray {
        (0..rows)
            .map(|_| (!draw.chance(35)).then(|| draw.pick(&texts)))
            .collect()
    };
    let lists = |draw: &mut Draw| -> ListArray {
        let item = |draw: &mut Draw| (!draw.chance(25)).then(|| draw.whole(0, 5) as i64);
        let list = |draw: &mut Draw| -> Option<Vec<Option<i64>>> {
            let length = draw.whole(0, 3);
            (!draw.chance(35)).then(|| (0..length).map(|_| item(draw)).collect())
        };
        let lists: Vec<_> = (0..count).map(|_| list(draw)).collect();
        ListArray::from_iter_primitive::<Int64Type, _, _>(lists)
    };
    let ints = some(draw, 0, 5);
    let i = Int64Array::from(ints.clone());
    let u: UInt8Array = some(draw, 0, 5)
        .into_iter()
        .map(|v| v.map(|v| v as u8))
        .collect();
    let i32s: Int32Array = some(draw, 0, 9)
        .into_iter()
        .map(|v| v.map(|v| v as i32))
        .collect();
    let f: Float64Array = some(draw, 0, 9)
        .into_iter()
        .map(|v| v.map(|v| v as f64 / 2.0))
        .collect();
    let b: BooleanArray = some(draw, 0, 1)
        .into_iter()
        .map(|v| v.map(|v| v > 0))
        .collect();
    let d: Date32Array = some(draw, 0, 20_000)
        .into_iter()
        .map(|v| v.map(|v| v as i32))
        .collect();
    let ts: TimestampNanosecondArray = some(draw, 0, 1 << 40)
        .into_iter()
        .map(|v| v.map(|v| v * 1_000_000))
        .collect();
    let time: Time64NanosecondArray = some(draw, 0, 86_400_000_000_000 - 1).into_iter().collect();
    let dec: Decimal128Array = some(draw, 0, 999)
        .into_iter()
        .map(|v| v.map(i128::from))
        .collect();
    let dec = dec.with_precision_and_scale(10, 2).unwrap();
    let bytes: [&[u8]; 4] = [b"a", b"\xff", b"", b"12"];
    let bin: BinaryArray = (0..count)
        .map(|_| (!draw.chance(35)).then(|| draw.pick(&bytes)))
        .collect();
    let s = text(draw, count);
    let l = lists(draw);
    let item = |t: &DataType| Arc::new(Field::new("item", t.clone(), true));
    let lengths =
        |draw: &mut Draw| -> Vec<usize> { (0..count).map(|_| draw.whole(0, 2) as usize).collect() };
    let of = lengths(draw);
    let values = text(draw, of.iter().sum());
    let offsets = OffsetBuffer::from_lengths(of);
    let ls = ListArray::new(
        item(&DataType::Utf8),
        offsets,
        Arc::new(values),
        Some(nulls(draw, count)),
    );
    let of = vec![1; count];
    let offsets = OffsetBuffer::from_lengths(of);
    let ll = ListArray::new(
        item(l.data_type()),
        offsets.clone(),
        Arc::new(lists(draw)),
        Some(nulls(draw, count)),
    );
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8, true),
        Field::new("l", l.data_type().clone(), true),
    ]);
    let structs = |draw: &mut Draw| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(some(draw, 0, 5))),
            Arc::new(text(draw, count)),
            Arc::new(lists(draw)),
        ];
        StructArray::new(fields.clone(), columns, Some(nulls(draw, count)))
    };
    let st = structs(draw);
    let sts = ListArray::new(
        item(st.data_type()),
        offsets,
        Arc::new(structs(draw)),
        Some(nulls(draw, count)),
    );
    let keys = StringArray::from_iter_values((0..count).map(|at| ["x", "y"][at % 2]));
    let entry = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, true),
    ]);
    let values = Int64Array::from(some(draw, 0, 5));
    let entries = StructArray::new(entry.clone(), vec![Arc::new(keys), Arc::new(values)], None);
    let entry = Arc::new(Field::new_struct("entries", entry, false));
    let m = MapArray::new(
        entry,
        OffsetBuffer::from_lengths(vec![1; count]),
        entries,
        Some(nulls(draw, count)),
        false,
    );
    let pairs: Int64Array = (0..2 * count as i64)
        .map(|v| (v % 5 != 0).then_some(v))
        .collect();
    let fl = FixedSizeListArray::new(
        item(&DataType::Int64),
        2,
        Arc::new(pairs),
        Some(nulls(draw, count)),
    );
    let keys: UInt32Array = some(draw, 0, 2)
        .into_iter()
        .map(|v| v.map(|v| v as u32))
        .collect();
    let words = StringArray::from(vec![Some("a"), Some("b"), None]);
    let dct = DictionaryArray::new(keys, Arc::new(words));
    let pixels = tensor();
    let size = pixels.elements().unwrap();
    let values = UInt8Array::from_iter_values((0..count * size).map(|v| (v % 251) as u8));
    let DataType::FixedSizeList(of_pixels, _) = pixels.data_type() else {
        panic!("{:?}", pixels.data_type())
    };
    let px = FixedSizeListArray::new(
        of_pixels,
        size as i32,
        Arc::new(values),
        Some(nulls(draw, count)),
    );
    let mut png = std::io::Cursor::new(Vec::new());
    let picture = image::RgbImage::from_fn(5, 4, |x, y| image::Rgb([x as u8, y as u8, 7]));
    picture.write_to(&mut png, image::ImageFormat::Png).unwrap();
    let png = png.into_inner();
    let img: BinaryArray = (0..count)
        .map(|_| (!draw.chance(35)).then_some(png.as_slice()))
        .collect();
    let numbers = UInt64Array::from_iter_values(0..count as u64);
    let zeros = UInt32Array::from(vec![0; count]);
    let ids = RowColumn {
        position: numbers.clone(),
        file: zeros.clone(),
        row: numbers.clone(),
        child: zeros,
        hash: UInt64Array::from_iter_values((0..count as u64).map(|i| i * 77)),
        pass: UInt64Array::from(vec![1; count]),
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(i)),
        ("u", Arc::new(u)),
        ("j", Arc::new(i32s)),
        ("f", Arc::new(f)),
        ("b", Arc::new(b)),
        ("s", Arc::new(s)),
        ("bin", Arc::new(bin)),
        ("d", Arc::new(d)),
        ("ts", Arc::new(ts)),
        ("t", Arc::new(time)),
        ("dec", Arc::new(dec)),
        ("l", Arc::new(l)),
        ("ls", Arc::new(ls)),
        ("ll", Arc::new(ll)),
        ("st", Arc::new(st)),
        ("sts", Arc::new(sts)),
        ("m", Arc::new(m)),
        ("fl", Arc::new(fl)),
        ("dct", Arc::new(dct)),
        ("px", Arc::new(px)),
        ("img", Arc::new(img)),
        (ROW_COLUMN, ids.to_array().unwrap()),
    ];
    let fields = columns.iter().map(|(name, column)| match *name {
        "px" => tensor().to_field("px").with_nullable(true),
        _ => Field::new(*name, column.data_type().clone(), true),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(
        schema,
        columns.into_iter().map(|(_, column)| column).collect(),
    )
    .unwrap()
}

fn tensor() -> TensorType {
    TensorType {
        dtype: Dtype::U8,
        channels: 3,
        layout: ImageLayout::Hwc,
        shape: Some((4, 4)),
    }
}

/// Returns rows equal to `batch`, but with other data under their nulls.
fn with_garbage(batch: &RecordBatch, seed: u64) -> RecordBatch {
    let draw = &mut Draw::new(seed);
    let columns = batch
        .schema()
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, column)| {
            if field.name() == ROW_COLUMN {
                Arc::clone(column)
            } else {
                polluted(column, draw)
            }
        })
        .collect();
    RecordBatch::try_new(batch.schema(), columns).unwrap()
}

/// For each row, its value as a string or its error. `Err` if the evaluation of the whole batch
/// fails.
type Values = Result<Vec<String>, String>;

fn values(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Values {
    let evaluated = catch_unwind(AssertUnwindSafe(|| evaluate(expr, batch)));
    let evaluated = evaluated.map_err(|_| "a panic".to_owned())?;
    let (array, failures) = evaluated.map_err(|error| error.to_string())?;
    let options = FormatOptions::default().with_null("NULL");
    let shown = ArrayFormatter::try_new(&array, &options).map_err(|e| e.to_string())?;
    let row = |row| match failures.get(&row) {
        Some((operator, cause)) => format!("{operator} failed: {cause}"),
        None => shown.value(row).to_string(),
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

fn one_by_one(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Values {
    let mut all = Vec::new();
    for row in 0..batch.num_rows() {
        all.extend(values(expr, &batch.slice(row, 1))?);
    }
    Ok(all)
}

/// The same rows, arranged in record batches in several ways, each with a name.
struct Ways {
    schema: DFSchema,
    plain: RecordBatch,
    others: Vec<(&'static str, RecordBatch)>,
}

impl Ways {
    fn new() -> Self {
        let plain = rows(10);
        let dirty = with_garbage(&plain, 1);
        let before_and_behind = with_garbage(&rows(3), 2);
        let more = [&before_and_behind, &dirty, &before_and_behind];
        let more = concat_batches(&plain.schema(), more).unwrap();
        let all = UInt64Array::from_iter_values(0..10);
        let columns = dirty
            .columns()
            .iter()
            .map(|column| take(column, &all, None).unwrap());
        let taken = RecordBatch::try_new(plain.schema(), columns.collect()).unwrap();
        let others = vec![
            ("with other garbage", with_garbage(&plain, 3)),
            ("as a part of more rows", more.slice(3, 10)),
            ("taken", taken),
            ("with garbage", dirty),
        ];
        let schema = DFSchema::try_from(plain.schema().as_ref().clone()).unwrap();
        Self {
            schema,
            plain,
            others,
        }
    }

    /// Evaluates an expression over all arrangements. Returns its values, and a description of the
    /// difference if an arrangement gives other values.
    fn check(&self, expr: &Expr) -> (Values, Option<String>) {
        let compiled = match compile_expr(expr, self.schema.clone()) {
            Ok(compiled) => compiled,
            Err(error) => return (Err(error.to_string()), None),
        };
        let plain = values(&compiled, &self.plain);
        let mut found = vec![("row by row".to_owned(), one_by_one(&compiled, &self.plain))];
        for (way, batch) in &self.others {
            found.push(((*way).to_owned(), values(&compiled, batch)));
            found.push((format!("row by row, {way}"), one_by_one(&compiled, batch)));
        }
        let other = found.into_iter().find(|(_, values)| *values != plain);
        let what = other.map(|(way, values)| format!("{expr}, {way}:\n  {plain:?}\n  {values:?}"));
        (plain, what)
    }
}

fn state() -> (SessionState, BTreeSet<String>) {
    let catalog = Catalog::new(forebay_udfs::functions(), Arc::new(FileResolver::default()));
    let state = catalog.session().state();
    let aggregates = state.aggregate_functions();
    let windows = state.window_functions();
    let higher = state.higher_order_functions();
    let accepted = catalog.functions().accepted().iter();
    let by_row = accepted.filter(|name| {
        let name = name.as_str();
        // Aliases are skipped, since the function is listed under its own name.
        match (state.scalar_functions().get(name), higher.get(name)) {
            (Some(function), _) => function.name() == name,
            (None, Some(function)) => function.name() == name,
            (None, None) => !(aggregates.contains_key(name) || windows.contains_key(name)),
        }
    });
    let by_row = by_row.cloned().collect();
    (state, by_row)
}

/// Coerces the types in an expression and binds its random draws. Fails if the expression is
/// invalid over the columns of `schema`.
fn typed(expr: Expr, schema: &DFSchema) -> Result<Expr, String> {
    let bound = Streams::default().bind(expr).map_err(|e| e.to_string())?;
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .build();
    let expr = ExprSimplifier::new(context)
        .coerce(bound, schema)
        .map_err(|e| e.to_string())?;
    expr.to_field(schema).map_err(|e| e.to_string())?;
    Ok(expr)
}

/// Returns the expressions that are tried as arguments of functions: each column, and some
/// constants.
fn arguments(schema: &Schema) -> Vec<Expr> {
    let columns = schema.fields().iter().map(|field| field.name().as_str());
    let columns = columns.filter(|name| *name != ROW_COLUMN).map(ident);
    let interval = ScalarValue::new_interval_mdn(0, 1, 0);
    let constants = ["a", "day", "Int32", "imagenet", "x", "UTC"].map(lit);
    let numbers = [
        lit(1_i64),
        lit(2_i64),
        lit(0.5),
        lit(true),
        Expr::Literal(interval, None),
    ];
    columns.chain(constants).chain(numbers).collect()
}

/// Returns the catalogue's example calls of the random image functions that [`CALLS_BY_HAND`] does
/// not call.
fn calls_of_examples() -> impl Iterator<Item = String> {
    let is_called = |name: &str| {
        let mut names = CALLS_BY_HAND.iter().filter_map(|text| text.split_once('('));
        names.any(|(called, _)| called == name)
    };
    let infos = forebay_udfs::catalogue().iter().filter(move |info| {
        info.category == "geometry" && is_random(info.name) && !is_called(info.name)
    });
    infos.filter_map(|info| {
        let call = info.example_over("px")?;
        call.starts_with(info.name).then_some(call)
    })
}

#[test]
fn the_value_of_a_row_depends_on_that_row_alone() {
    let ways = Ways::new();
    let schema = ways.schema.clone();
    let (state, mut functions) = state();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    let by_hand = CALLS_BY_HAND.iter().map(|&text| text.to_owned());
    let by_hand: Vec<String> = by_hand.chain(calls_of_examples()).collect();
    let expressions = EXPRESSIONS.iter().map(|&text| text.to_owned());
    for text in expressions.chain(by_hand.iter().cloned()) {
        let text = text.as_str();
        let expr = state
            .create_logical_expr(text, &schema)
            .map_err(|error| error.to_string());
        match expr.and_then(|expr| typed(expr, &schema)) {
            Ok(expr) => {
                let (plain, other) = ways.check(&expr);
                wrong.extend(plain.err().map(|error| format!("{text}: {error}")));
                wrong.extend(other);
                checked += 1;
            }
            Err(error) => wrong.push(format!("{text}: {error}")),
        }
    }
    for (name, _) in by_hand.iter().filter_map(|text| text.split_once('(')) {
        functions.remove(name);
    }
    let arguments = arguments(&ways.plain.schema());
    let mut unmet = Vec::new();
    for name in &functions {
        let Some(function) = state.scalar_functions().get(name) else {
            unmet.push(name.as_str());
            continue;
        };
        let draw = &mut Draw::new(hash_bytes(name.as_bytes()));
        let mut met = false;
        for count in 0..=4_usize {
            let all = arguments.len().pow(count as u32);
            let mut calls = 0;
            for at in 0..all.min(TRIES) {
                let args = (0..count).map(|n| match count {
                    1 => arguments[(at + n) % arguments.len()].clone(),
                    _ => draw.pick(&arguments),
                });
                let call = ScalarFunction::new_udf(Arc::clone(function), args.collect());
                let Ok(expr) = typed(Expr::ScalarFunction(call), &schema) else {
                    continue;
                };
                let (plain, other) = ways.check(&expr);
                let values = plain.as_ref().into_iter().flatten();
                met |= values.into_iter().any(|value| !value.contains(" failed: "));
                if plain.is_ok() || other.is_some() {
                    checked += 1;
                    calls += 1;
                }
                wrong.extend(other);
                if calls == CALLS {
                    break;
                }
            }
        }
        if !met {
            unmet.push(name.as_str());
        }
    }
    eprintln!("{checked} calls of {} functions", functions.len());
    let wrong = format!("{} differ: {}", wrong.len(), wrong.join("\n"));
    assert_eq!(
        (unmet, wrong),
        (NEVER_CALLED.to_vec(), "0 differ: ".to_owned())
    );
}
