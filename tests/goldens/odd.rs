//! Unusual data: a row on which every function fails, values hidden under nulls, columns of many
//! types, damaged files. Also small data with the table names that the guide uses.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, DurationSecondArray, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, RecordBatch, StringArray, StringViewArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, IntervalMonthDayNano, TimeUnit};
use arrow::ipc::writer::FileWriter;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::common::{parquet, table};

/// The tables over the data of this file: name, format and location.
pub(crate) const TABLES: [(&str, &str, &str); 9] = [
    ("odd", "PARQUET", "odd"),
    ("sides", "JSON", "sides.json"),
    ("hidden", "ARROW", "hidden.arrow"),
    ("typed", "ARROW", "typed.arrow"),
    ("damaged", "PARQUET", "damaged.parquet"),
    ("web", "PARQUET", "web"),
    ("books", "PARQUET", "books"),
    ("sales", "PARQUET", "sales"),
    ("words", "CSV", "words.csv"),
];

/// Number of rows in the table `odd`, and the index of the row on which functions fail.
const ROWS: usize = 24;
const BAD: usize = 13;

/// Writes the data to a folder, which must contain `blocks.avro`.
pub(crate) fn write(dir: &Path) {
    parquet(&dir.join("odd/a.parquet"), &odd(), 10);
    let sides: String = (0..20)
        .map(|value| format!("{{\"value\": {value}, \"name\": \"{value}\"}}\n"))
        .collect();
    std::fs::write(dir.join("sides.json"), sides).unwrap();
    arrow_file(&dir.join("hidden.arrow"), &hidden());
    arrow_file(&dir.join("typed.arrow"), &typed());
    damaged(&dir.join("damaged.parquet"));
    std::fs::write(dir.join("quote.csv"), "id,text\n1,a\n2,\"b\n3,c\n4,d\n").unwrap();
    std::fs::write(dir.join("notes.txt"), "no image").unwrap();
    let mut blocks = std::fs::read(dir.join("blocks.avro")).unwrap();
    // The number of rows in the first block follows the sync marker at the end of the header. The
    // same marker ends each block, and so the file.
    let marker = blocks[blocks.len() - 16..].to_vec();
    let at = blocks.windows(16).position(|bytes| bytes == marker);
    blocks[at.unwrap() + 16] += 4;
    std::fs::write(dir.join("lying.avro"), blocks).unwrap();
    for (name, first, shortest) in [("web", 0, 1), ("books", 1000, 20)] {
        parquet(
            &dir.join(name).join("a.parquet"),
            &tokens(first, shortest),
            20,
        );
    }
    parquet(&dir.join("sales/a.parquet"), &sales(), 25);
    std::fs::write(dir.join("words.csv"), "id,word\n0,zero\n1,one\n2,two\n").unwrap();
}

fn arrow_file(path: &Path, rows: &RecordBatch) {
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &rows.schema()).unwrap();
    writer.write(rows).unwrap();
    writer.finish().unwrap();
}

fn nullable(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Returns rows of strings, binaries, lists and numbers. The values in the row `BAD` are malformed
/// or out of range.
fn odd() -> RecordBatch {
    let texts = |good: &dyn Fn(usize) -> String, bad: &str| -> ArrayRef {
        let text = |row| {
            if row == BAD {
                bad.to_owned()
            } else {
                good(row)
            }
        };
        Arc::new(StringArray::from_iter_values((0..ROWS).map(text)))
    };
    let ints = |good: i64, bad: i64| -> ArrayRef {
        let int = |row| if row == BAD { bad } else { good };
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(int)))
    };
    let listed = |values: ArrayRef| -> ArrayRef {
        let item = Arc::new(Field::new("element", values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(vec![1; ROWS]);
        Arc::new(ListArray::new(item, offsets, values, None))
    };
    let number = texts(&|row| row.to_string(), "oops");
    let bytes = |row: usize| {
        if row == BAD {
            vec![b'a', 0xff, 0xfe]
        } else {
            row.to_string().into_bytes()
        }
    };
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..ROWS).map(bytes)));
    let named = vec![Field::new("number", DataType::Utf8, true)];
    let named = StructArray::new(named.into(), vec![Arc::clone(&number)], None);
    nullable(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS as i64))),
        ("number", Arc::clone(&number)),
        ("truth", texts(&|_| "true".to_owned(), "perhaps")),
        ("day", texts(&|_| "2024-02-29".to_owned(), "2023-02-30")),
        ("clock", texts(&|_| "12:30:00".to_owned(), "noon")),
        ("hex", texts(&|_| "c0ffee".to_owned(), "coffee")),
        ("pattern", texts(&|_| "[0-9]+".to_owned(), "(")),
        ("bytes", Arc::clone(&bytes)),
        ("numbers", listed(number)),
        ("all_bytes", listed(bytes)),
        ("named", Arc::new(named)),
        ("one", ints(1, -4)),
        ("small", ints(1, 0)),
        ("large", ints(3, 11_000_000_000_000_000)),
    ])
}

/// Returns four rows, one of which has a null struct and a null list whose child arrays still
/// contain values.
fn hidden() -> RecordBatch {
    let valid = NullBuffer::from(vec![true, false, true, true]);
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int64, false),
        Field::new("b", DataType::Utf8, false),
    ]);
    let a: ArrayRef = Arc::new(Int64Array::from(vec![10, 11, 12, 13]));
    let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "hidden", "y", "z"]));
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let items: ArrayRef = Arc::new(Int64Array::from(vec![1, 7, 8, 3, 4, 5]));
    let offsets = OffsetBuffer::from_lengths([1, 2, 0, 3]);
    nullable(vec![
        ("id", Arc::new(Int64Array::from(vec![0, 1, 2, 3]))),
        (
            "st",
            Arc::new(StructArray::new(fields, vec![a, b], Some(valid.clone()))),
        ),
        (
            "l",
            Arc::new(ListArray::new(item, offsets, items, Some(valid))),
        ),
    ])
}

/// Returns three rows of many types.
fn typed() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(100)]));
    let as_type = |data_type: DataType| cast(&numbers, &data_type).unwrap();
    let text = [
        Some("x"),
        None,
        Some("a long text, \"quoted\"\nover two lines"),
    ];
    let interval = IntervalMonthDayNano::new(1, 2, 3_000_000_000);
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    nullable(vec![
        ("i8", as_type(DataType::Int8)),
        ("u16", as_type(DataType::UInt16)),
        ("u64", as_type(DataType::UInt64)),
        ("f16", as_type(DataType::Float16)),
        ("f32", as_type(DataType::Float32)),
        ("dec", as_type(DataType::Decimal128(30, 10))),
        (
            "days",
            cast(&Int32Array::from(vec![1, 2, 3]), &DataType::Date32).unwrap(),
        ),
        (
            "ms",
            as_type(DataType::Timestamp(TimeUnit::Millisecond, None)),
        ),
        ("utc", as_type(utc)),
        ("time", as_type(DataType::Time64(TimeUnit::Nanosecond))),
        (
            "truth",
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        ),
        ("view", Arc::new(StringViewArray::from_iter(text))),
        (
            "large",
            cast(&StringArray::from_iter(text), &DataType::LargeUtf8).unwrap(),
        ),
        (
            "few",
            Arc::new(text.into_iter().collect::<DictionaryArray<Int32Type>>()),
        ),
        (
            "span",
            Arc::new(DurationSecondArray::from(vec![Some(1), None, Some(-5)])),
        ),
        (
            "months",
            Arc::new(IntervalMonthDayNanoArray::from(vec![
                Some(interval),
                None,
                None,
            ])),
        ),
    ])
}

/// Writes a Parquet file with row groups of 20 rows. In the second row group, a column is damaged.
fn damaged(path: &Path) {
    parquet(path, &table(60), 20);
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let group = reader.metadata().row_group(1);
    let x = group
        .columns()
        .iter()
        .find(|c| c.column_path().parts()[0] == "x");
    let (start, length) = x.unwrap().byte_range();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[start as usize..(start + length) as usize].fill(0xff);
    std::fs::write(path, bytes).unwrap();
}

/// Returns 60 rows with ids from `first` and lists of at least `shortest` token ids.
fn tokens(first: i64, shortest: i64) -> RecordBatch {
    let rows = || (0..60).map(|row| row + first);
    let tokens = rows().map(|id| {
        let length = shortest + id * 37 % 40;
        Some((0..length).map(move |at| Some(((id * 31 + at * 7) % 1000 + 1) as i32)))
    });
    let tokens = ListArray::from_iter_primitive::<Int32Type, _, _>(tokens);
    nullable(vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows()))),
        ("tokens", Arc::new(tokens)),
    ])
}

/// Returns the table `sales` of the guide, with a category, a price and clicks in each row.
fn sales() -> RecordBatch {
    let rows = 0..70_i64;
    let category = rows
        .clone()
        .map(|id| ["books", "toys", "food"][id as usize * 5 % 7 % 3]);
    let price: ArrayRef = Arc::new(Int64Array::from_iter_values(
        rows.clone().map(|id| id * 13 % 101),
    ));
    let clicks = rows.clone().map(|id| (id % 9 != 4).then_some(id * 7 % 5));
    nullable(vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows))),
        (
            "category",
            Arc::new(StringArray::from_iter_values(category)),
        ),
        ("price", cast(&price, &DataType::Float64).unwrap()),
        ("clicks", Arc::new(Int64Array::from_iter(clicks))),
    ])
}
