//! Columns of every Arrow type are written to files of every format. A column is either read back
//! equal, or the writer refuses it before anything is written.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use arrow::array::types::Int32Type;
use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BooleanArray, Date64Array, DictionaryArray,
    DurationSecondArray, FixedSizeListArray, Float32Array, Int32Array, Int64Array,
    IntervalDayTimeArray, IntervalMonthDayNanoArray, IntervalYearMonthArray, LargeListArray,
    ListArray, MapArray, NullArray, RecordBatch, RunArray, StringArray, StringViewArray,
    StructArray, Time32SecondArray, TimestampSecondArray, UInt64Array, UnionArray, new_empty_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Field, Fields, IntervalDayTime, IntervalMonthDayNano, IntervalUnit, Schema, TimeUnit,
    UnionFields,
};
use forebay::Session;
use forebay::generate::{TableFormat, TableWriter};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::common::batches_of_p;

/// Returns one column of three rows for each type to which integers can be cast.
fn cast_from_numbers() -> Vec<ArrayRef> {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(86_400_000)]));
    let small: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(100)]));
    let mut types = vec![
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::Float64,
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Date32,
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Decimal32(9, 2),
        DataType::Decimal32(1, 0),
        DataType::Decimal64(18, 4),
        DataType::Decimal128(30, 10),
        DataType::Decimal256(60, 20),
        DataType::Decimal128(5, -2),
    ];
    for unit in [
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ] {
        types.push(DataType::Timestamp(unit, None));
        types.push(DataType::Timestamp(unit, Some("UTC".into())));
        types.push(DataType::Timestamp(unit, Some("+02:00".into())));
        types.push(DataType::Duration(unit));
    }
    types.push(DataType::Time64(TimeUnit::Microsecond));
    types.push(DataType::Time64(TimeUnit::Nanosecond));
    let made = types.into_iter().map(|data_type| {
        let from = match data_type {
            DataType::Timestamp(..) | DataType::Duration(_) | DataType::Time64(_) => &numbers,
            _ => &small,
        };
        let from = match &data_type {
            DataType::Decimal32(1, 0) => Arc::new(Int32Array::from(vec![Some(1), None, Some(9)])),
            _ => Arc::clone(from),
        };
        cast(&from, &data_type).unwrap()
    });
    made.collect()
}

fn others() -> Vec<ArrayRef> {
    let bytes = [Some(&b"ab"[..]), None, Some(&[0, 255][..])];
    let binary: ArrayRef = Arc::new(BinaryArray::from_iter(bytes));
    let text = [
        Some("x"),
        None,
        Some("a long text, \"quoted\"\nover two lines"),
    ];
    let day = 86_400_000;
    vec![
        Arc::new(NullArray::new(3)),
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0)])),
        cast(
            &Float32Array::from(vec![Some(1.5), None, Some(65504.0)]),
            &DataType::Float16,
        )
        .unwrap(),
        Arc::new(Float32Array::from(vec![
            Some(0.1),
            None,
            Some(f32::MIN_POSITIVE),
        ])),
        Arc::new(StringArray::from_iter(text)),
        Arc::new(StringViewArray::from_iter(text)),
        cast(&binary, &DataType::LargeBinary).unwrap(),
        cast(&binary, &DataType::BinaryView).unwrap(),
        cast(&binary, &DataType::FixedSizeBinary(2)).unwrap(),
        binary,
        Arc::new(Date64Array::from(vec![Some(day), None, Some(-day)])),
        Arc::new(Time32SecondArray::from(vec![Some(1), None, Some(86_399)])),
        Arc::new(TimestampSecondArray::from(vec![Some(1), None, Some(-5)])),
        Arc::new(TimestampSecondArray::from(vec![Some(1), None, Some(-5)]).with_timezone("UTC")),
        Arc::new(DurationSecondArray::from(vec![Some(1), None, Some(-5)])),
        Arc::new(IntervalYearMonthArray::from(vec![Some(14), None, Some(-3)])),
        Arc::new(IntervalDayTimeArray::from(vec![
            Some(IntervalDayTime::new(2, 3_000)),
            None,
            Some(IntervalDayTime::new(0, 1)),
        ])),
        Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(IntervalMonthDayNano::new(1, 2, 3_000_000_000)),
            None,
            Some(IntervalMonthDayNano::new(0, 1, 0)),
        ])),
        Arc::new(text.into_iter().collect::<DictionaryArray<Int32Type>>()),
        Arc::new(
            DictionaryArray::<Int32Type>::try_new(
                Int32Array::from(vec![Some(1), None, Some(0)]),
                Arc::new(TimestampSecondArray::from(vec![7, 8])),
            )
            .unwrap(),
        ),
        Arc::new(
            RunArray::<Int32Type>::try_new(
                &Int32Array::from(vec![2, 3]),
                &StringArray::from(vec![Some("a"), None]),
            )
            .unwrap(),
        ),
    ]
}

fn union() -> ArrayRef {
    let fields = UnionFields::try_new(
        [0, 1],
        [
            Field::new("i", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
        ],
    );
    let children: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1, 0, 3])),
        Arc::new(StringArray::from(vec!["", "b", ""])),
    ];
    let ids = ScalarBuffer::from(vec![0_i8, 1, 0]);
    Arc::new(UnionArray::try_new(fields.unwrap(), ids, None, children).unwrap())
}

/// Returns lists, structs and maps of three rows that contain the values of `item`. One of the
/// three rows is null.
fn nested(item: &ArrayRef) -> Vec<ArrayRef> {
    let field = Arc::new(Field::new("item", item.data_type().clone(), true));
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let offsets = [2_usize, 0, 1];
    let values = || Arc::clone(item);
    let list = ListArray::new(
        Arc::clone(&field),
        OffsetBuffer::from_lengths(offsets),
        values(),
        nulls(),
    );
    let large = LargeListArray::new(
        Arc::clone(&field),
        OffsetBuffer::from_lengths(offsets),
        values(),
        nulls(),
    );
    let view = DataType::ListView(Arc::clone(&field));
    let fields = Fields::from(vec![Field::new("a", item.data_type().clone(), true)]);
    let mut made: Vec<ArrayRef> = vec![
        Arc::new(FixedSizeListArray::new(
            Arc::clone(&field),
            1,
            values(),
            None,
        )),
        Arc::new(StructArray::new(fields, vec![values()], nulls())),
        Arc::new(map(
            Arc::new(StringArray::from(vec!["k", "l", "m"])),
            values(),
        )),
        Arc::new(large),
    ];
    made.extend(cast(&list, &view));
    made.push(Arc::new(list));
    made
}

fn map(keys: ArrayRef, values: ArrayRef) -> MapArray {
    let fields = Fields::from(vec![
        Field::new("keys", keys.data_type().clone(), false),
        Field::new("values", values.data_type().clone(), true),
    ]);
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let offsets = OffsetBuffer::from_lengths([1, 0, 2]);
    MapArray::new(field, offsets, entries, None, false)
}

/// Returns the type `of`, with each nested type that has no children replaced by the result of
/// `leaf`.
fn replaced(of: &DataType, leaf: &dyn Fn(&DataType) -> DataType) -> DataType {
    let field = |field: &Field| {
        let data_type = replaced(field.data_type(), leaf);
        Arc::new(field.clone().with_data_type(data_type))
    };
    match of {
        DataType::Dictionary(_, values) => replaced(values, leaf),
        DataType::RunEndEncoded(_, values) => replaced(values.data_type(), leaf),
        DataType::List(item) | DataType::ListView(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|f| field(f)).collect()),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        other => leaf(other),
    }
}

/// Returns the type that a format's reader returns for a column written with the type `of`: without
/// dictionary and run-end encodings and list views, and with time units that the format has.
fn shown(format: TableFormat, of: &DataType) -> DataType {
    replaced(of, &|leaf| match leaf {
        DataType::Timestamp(TimeUnit::Second, zone) if format == TableFormat::Parquet => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(_) if format == TableFormat::Parquet => {
            DataType::Time32(TimeUnit::Millisecond)
        }
        DataType::Date64 if format == TableFormat::Parquet => DataType::Date32,
        DataType::Decimal32(1, 0) if format == TableFormat::Parquet => DataType::Decimal64(1, 0),
        other => other.clone(),
    })
}

/// Returns the type to request from Arrow's JSON reader for a column of type `of`. The reader
/// cannot return intervals, which are read as strings, or decimals of negative scale.
fn asked_for(of: &DataType) -> DataType {
    replaced(of, &|leaf| match leaf {
        DataType::Interval(_) => DataType::Utf8,
        DataType::Decimal128(_, ..0) => DataType::Int64,
        other => other.clone(),
    })
}

fn write(path: &Path, batch: &RecordBatch) -> Result<(), String> {
    let format = TableFormat::of_path(path).unwrap();
    let mut writer =
        TableWriter::create(path, format, &batch.schema()).map_err(|e| e.to_string())?;
    // The rows are written in two batches, since the dictionaries of a file cannot change from one
    // batch to the next.
    for (from, rows) in [(0, 1), (1, batch.num_rows() - 1)] {
        writer
            .write(&batch.slice(from, rows))
            .map_err(|e| format!("late: {e}"))?;
    }
    writer.finish().map(drop).map_err(|e| format!("late: {e}"))
}

/// Reads a file with the reader of its format, which expects the types of `schema`.
fn read(path: &Path, schema: &Arc<Schema>) -> RecordBatch {
    let file = File::open(path).unwrap();
    let batches: Vec<RecordBatch> = match TableFormat::of_path(path).unwrap() {
        TableFormat::Parquet => {
            let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            builder.build().unwrap().map(Result::unwrap).collect()
        }
        TableFormat::Arrow => {
            let reader = arrow::ipc::reader::FileReader::try_new(file, None).unwrap();
            reader.map(Result::unwrap).collect()
        }
        TableFormat::Json => {
            let builder = arrow::json::ReaderBuilder::new(Arc::clone(schema));
            let reader = builder.build(BufReader::new(file)).unwrap();
            reader.map(Result::unwrap).collect()
        }
        TableFormat::Csv => {
            // The values are read as strings, and cast to the expected type later.
            let text = Arc::new(Schema::new(vec![Field::new("x", DataType::Utf8, true)]));
            let builder = arrow::csv::ReaderBuilder::new(text).with_header(true);
            builder.build(file).unwrap().map(Result::unwrap).collect()
        }
    };
    let found = batches[0].schema();
    arrow::compute::concat_batches(&found, &batches).unwrap()
}

/// Decodes hexadecimal digits.
fn from_hex(text: &StringArray) -> BinaryArray {
    let digits = |text: &str| -> Vec<u8> {
        let pairs = (0..text.len()).step_by(2);
        pairs
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    };
    text.iter().map(|text| text.map(digits)).collect()
}

/// Writes an array to a file and reads it. Returns false if the writer refuses the array. Panics if
/// the array that is read differs.
fn is_written(folder: &Path, end: &str, array: &ArrayRef) -> bool {
    let path = folder.join(format!("t.{end}"));
    let what = format!("{} in {end}", array.data_type());
    let schema = Arc::new(Schema::new(vec![Field::new(
        "x",
        array.data_type().clone(),
        true,
    )]));
    let batch = RecordBatch::try_new(schema, vec![Arc::clone(array)]).unwrap();
    fs::write(&path, "older").unwrap();
    if let Err(why) = write(&path, &batch) {
        assert!(
            why.contains("column \"x\" has the type") && !why.contains("late"),
            "{what}: {why}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "older", "{what}");
        return false;
    }
    let format = TableFormat::of_path(&path).unwrap();
    let expected_type = shown(format, array.data_type());
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let expected = cast_with_options(array, &expected_type, &strict).unwrap();
    let types = Arc::new(Schema::new(vec![Field::new(
        "x",
        asked_for(&expected_type),
        true,
    )]));
    let mut found = Arc::clone(read(&path, &types).column(0));
    if format == TableFormat::Csv && is_binary(&expected_type) {
        found = Arc::new(from_hex(found.as_string::<i32>()));
    }
    if format == TableFormat::Csv && expected_type == DataType::Null {
        assert_eq!(found.null_count(), found.len(), "{what}");
        found = Arc::new(NullArray::new(found.len()));
    }
    if matches!(format, TableFormat::Csv | TableFormat::Json) {
        found = cast_with_options(&found, &asked_for(&expected_type), &strict).unwrap();
        found = cast_with_options(&found, &expected_type, &strict).unwrap();
    }
    assert_eq!(found.data_type(), &expected_type, "{what}");
    assert_eq!(&found, &expected, "{what}");
    true
}

fn is_binary(of: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(of, Binary | BinaryView | FixedSizeBinary(_) | LargeBinary)
}

#[test]
fn every_type_is_read_back_equal_or_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut arrays = cast_from_numbers();
    arrays.extend(others());
    let flat = arrays.len();
    let mut nested_arrays: Vec<ArrayRef> = arrays.iter().flat_map(nested).collect();
    let twice: Vec<ArrayRef> = nested(&arrays[2]).iter().flat_map(nested).collect();
    nested_arrays.extend(twice);
    arrays.extend(nested_arrays);
    for end in ["parquet", "arrow", "json", "csv"] {
        let mut refused = Vec::new();
        for (at, array) in arrays.iter().enumerate() {
            if !is_written(folder.path(), end, array) && at < flat {
                refused.push(array.data_type().to_string());
            }
        }
        refused.sort();
        refused.dedup();
        let expected: &[&str] = match end {
            "parquet" => &["Decimal128(5, -2)", "Interval(MonthDayNano)"],
            "arrow" => &[],
            _ => &[
                "Duration(ms)",
                "Duration(ns)",
                "Duration(s)",
                "Duration(µs)",
            ],
        };
        assert_eq!(refused, expected, "{end}");
    }
}

#[test]
fn unions_empty_structs_and_maps_of_numbers_are_refused_where_they_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let by_number: ArrayRef = Arc::new(map(Arc::clone(&numbers), numbers));
    let empty: ArrayRef = Arc::new(StructArray::new_empty_fields(3, None));
    let of_union = nested(&union()).remove(1);
    for (array, end, is_held) in [
        (&union(), "parquet", false),
        (&union(), "json", false),
        (&union(), "csv", false),
        (&union(), "arrow", true),
        (&of_union, "parquet", false),
        (&of_union, "json", false),
        (&empty, "parquet", false),
        (&empty, "arrow", true),
        (&by_number, "json", false),
        (&by_number, "parquet", true),
        (&by_number, "arrow", true),
    ] {
        let of = array.data_type();
        assert_eq!(
            is_written(folder.path(), end, array),
            is_held,
            "{of} in {end}"
        );
    }
}

/// A Date64 value that includes a time of day is refused, since Parquet's DATE has no time of day.
#[test]
fn a_time_of_day_is_not_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let dates: ArrayRef = Arc::new(Date64Array::from(vec![Some(86_400_000), None, Some(5)]));
    for array in nested(&dates).into_iter().chain([dates]) {
        let path = folder.path().join("t.parquet");
        let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
        let why = write(&path, &batch).unwrap_err();
        assert!(why.contains("a date has a time of day"), "{why}");
    }
}

/// Checks the logical types in the metadata of a Parquet file, which other readers depend on.
#[test]
fn seconds_and_dates_have_logical_types_in_parquet_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let seconds = TimestampSecondArray::from(vec![1, 2]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("t", Arc::new(seconds.clone())),
        ("z", Arc::new(seconds.with_timezone("UTC"))),
        ("d", Arc::new(Date64Array::from(vec![0, 86_400_000]))),
        ("s", Arc::new(Time32SecondArray::from(vec![1, 2]))),
    ];
    write(&path, &RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let described: Vec<String> = { builder.parquet_schema().columns().iter() }
        .map(|column| format!("{:?}", column.logical_type_ref()))
        .collect();
    for (at, sign) in ["Timestamp", "Timestamp", "Date", "Time"]
        .iter()
        .enumerate()
    {
        assert!(described[at].contains(sign), "{described:?}");
    }
    assert!(
        described[0].contains("MILLIS") && described[3].contains("MILLIS"),
        "{described:?}"
    );
}

/// A file that a run has written can be read by a Forebay source.
#[tokio::test]
async fn sources_read_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    for (end, array) in [
        (
            "parquet",
            Arc::new(TimestampSecondArray::from(vec![1, 2, 3])) as ArrayRef,
        ),
        ("arrow", union()),
        (
            "arrow",
            Arc::new(IntervalMonthDayNanoArray::from(
                vec![IntervalMonthDayNano::new(1, 2, 3); 3],
            )),
        ),
    ] {
        let path = folder.path().join(format!("t.{end}"));
        let batch = RecordBatch::try_from_iter([("x", Arc::clone(&array))]).unwrap();
        write(&path, &batch).unwrap();
        let session = Session::new();
        let sql = format!(
            "CREATE PIPELINE p AS SELECT x FROM {end}('{}') BATCH 3",
            path.display()
        );
        session.execute(&sql).await.unwrap();
        let batches = batches_of_p(&session, Default::default(), 9).await.unwrap();
        let expected = match array.data_type() {
            DataType::Timestamp(..) => {
                cast(&array, &DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap()
            }
            _ => array,
        };
        assert_eq!(batches[0].batch.column(0), &expected, "{end}");
    }
}

#[test]
fn types_without_rows_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Date64));
    let columns = [
        ("d", new_empty_array(&dictionary)),
        (
            "i",
            new_empty_array(&DataType::Interval(IntervalUnit::YearMonth)),
        ),
        (
            "l",
            new_empty_array(&DataType::new_list(DataType::Int64, true)),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = TableWriter::create(&path, TableFormat::Parquet, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    assert_eq!(builder.schema().field(0).data_type(), &DataType::Date32);
}
