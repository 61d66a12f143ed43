//! In every kernel that can fail, one bad value fails only its own row, whatever the plan, the
//! segment size and the number of ranks.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, DictionaryArray, Int64Array, ListArray, RecordBatch,
    StringArray, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type};
use forebay::clauses::Optimize;
use forebay::{Batch, RunConfig, RunInternals, Session};

use crate::common::{batches, digest, parquet};

/// Number of rows in the small table, and the index of the row on which every kernel fails.
const ROWS: usize = 300;
const BAD: usize = 137;

/// Expressions over the table. Each expression has a value in every row but the row `BAD`, in which
/// it raises an error.
const KERNELS: &[&str] = &[
    // Conversions of strings to other types.
    "CAST(number AS BIGINT)",
    "CAST(number AS DOUBLE)",
    "CAST(number AS DECIMAL(10, 2))",
    "CAST(truth AS BOOLEAN)",
    "CAST(day AS DATE)",
    "CAST(day AS TIMESTAMP)",
    "CAST(clock AS TIME)",
    "arrow_cast(number, 'UInt8')",
    "to_date(day)",
    "to_timestamp(day)",
    "to_timestamp_millis(day)",
    "to_unixtime(day)",
    // Conversions of binaries to strings.
    "CAST(bytes AS VARCHAR)",
    "arrow_cast(bytes, 'Utf8View')",
    "arrow_cast(bytes, 'LargeUtf8')",
    "upper(CAST(bytes AS VARCHAR))",
    "length(CAST(bytes AS VARCHAR))",
    "bytes || 'x'",
    "CAST(bytes AS VARCHAR) LIKE '%1%'",
    // Nested values.
    "CAST(numbers AS BIGINT[])",
    "CAST(all_bytes AS VARCHAR[])",
    "CAST(make_array(numbers, numbers) AS BIGINT[][])",
    "CAST(named['number'] AS BIGINT)",
    "CAST(number_of_few AS BIGINT)",
    "arrow_cast(numbers, 'LargeList(Int64)')",
    "CAST(array_append(numbers, number) AS BIGINT[])",
    "array_sum(CAST(numbers AS BIGINT[]))",
    // Arithmetic.
    "10 / small",
    "10 % small",
    "CAST(large AS INT)",
    "arrow_cast(large, 'Int8')",
    "CAST(large AS DECIMAL(5, 0))",
    "factorial(large)",
    "CAST(large AS DECIMAL(38, 0)) * CAST('100000000000000000000000' AS DECIMAL(38, 0))",
    // Functions of several arguments.
    "decode(hex, 'hex')",
    "regexp_like(number, pattern)",
    "regexp_replace(number, pattern, 'x')",
    "regexp_match(number, pattern)",
    "regexp_count(number, pattern)",
    "substr(number, 1, one)",
    "split_part(number, ',', small)",
    "chr(one)",
    "make_date(2024, large, 1)",
    // Functions whose result is as large as an argument specifies.
    "repeat('ab', large)",
    "lpad(number, large)",
    "rpad(number, large, 'é')",
    "array_repeat(id, large)",
    "array_resize([id], one)",
    "array_resize([id], large, 7)",
    "range(0, large)",
    "generate_series(0, large)",
    "length(repeat('ab', large)) + length(lpad('a', large))",
    // Failing expressions inside CASE, coalesce and AND, which need not evaluate all of their
    // operands.
    "CASE WHEN id >= 0 THEN 10 / small ELSE 1 END",
    "coalesce(10 / small, 1)",
    "small = 0 AND 10 / small = 1",
];

/// Returns a table of `rows` rows. In the rows for which `is_bad` is true, strings are malformed
/// and numbers are out of range.
fn table(rows: usize, is_bad: impl Fn(usize) -> bool) -> RecordBatch {
    let texts = |good: &dyn Fn(usize) -> String, bad: &str| -> ArrayRef {
        let text = |row| {
            if is_bad(row) {
                bad.to_owned()
            } else {
                good(row)
            }
        };
        Arc::new(StringArray::from_iter_values((0..rows).map(text)))
    };
    let ints = |good: i64, bad: i64| -> ArrayRef {
        let int = |row| if is_bad(row) { bad } else { good };
        Arc::new(Int64Array::from_iter_values((0..rows).map(int)))
    };
    let listed = |values: ArrayRef| -> ArrayRef {
        let item = Arc::new(Field::new("element", values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(vec![1; rows]);
        Arc::new(ListArray::new(item, offsets, values, None))
    };
    let number = texts(&|row| (row % 100).to_string(), "oops");
    let bytes = |row: usize| {
        if is_bad(row) {
            vec![b'a', 0xff, 0xfe]
        } else {
            row.to_string().into_bytes()
        }
    };
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..rows).map(bytes)));
    let named = Field::new("number", DataType::Utf8, true);
    let named = StructArray::new(vec![named].into(), vec![Arc::clone(&number)], None);
    let few = number
        .as_string::<i32>()
        .iter()
        .collect::<DictionaryArray<Int32Type>>();
    let columns: [(&str, ArrayRef); 15] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
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
        ("number_of_few", Arc::new(few)),
        ("one", ints(1, -4)),
        ("small", ints(1, 0)),
        ("large", ints(3, 11_000_000_000_000_000)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

async fn session(dir: &Path, rows: &RecordBatch, group: usize) -> Session {
    parquet(&dir.join("rows/a.parquet"), rows, group);
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE rows STORED AS PARQUET LOCATION '{}'",
        dir.join("rows").display()
    );
    session.execute(&sql).await.unwrap();
    session
}

async fn create(session: &Session, query: &str, batch: usize, on_error: &str) {
    let sql = format!(
        "CREATE OR REPLACE PIPELINE p AS {query} BATCH {batch} OPTIONS (on_error = '{on_error}')"
    );
    let created = session.execute(&sql).await;
    created.unwrap_or_else(|error| panic!("{query}: {error}"));
}

async fn given(session: &Session, query: &str, config: RunConfig) -> Vec<Batch> {
    let given = batches(session, "p", config).await;
    given.unwrap_or_else(|error| panic!("{query}: {error}"))
}

fn ids(batches: &[Batch]) -> Vec<i64> {
    let of = |batch: &Batch| {
        batch
            .batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    batches.iter().flat_map(of).collect()
}

fn without_plan() -> RunConfig {
    RunConfig {
        optimize: Some(Optimize::Off),
        internals: RunInternals {
            segment_rows: Some(7),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    }
}

async fn of_ranks(session: &Session, query: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for rank in 0..4 {
        let config = RunConfig {
            rank,
            world: 4,
            ..RunConfig::default()
        };
        all.extend(ids(&given(session, query, config).await));
    }
    all.sort_unstable();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_value_fails_one_row_in_each_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(dir.path(), &table(ROWS, |row| row == BAD), 100).await;
    let others: Vec<i64> = (0..ROWS as i64).filter(|id| *id != BAD as i64).collect();
    let mut wrong = Vec::new();
    for (number, kernel) in KERNELS.iter().enumerate() {
        let query = format!("SELECT id, {kernel} AS x FROM rows");
        create(&session, &query, 64, "fail").await;
        let error = batches(&session, "p", RunConfig::default()).await;
        let error = error.map(drop).map_err(|error| error.to_string());
        if !matches!(&error, Err(text) if text.contains(&format!("row {BAD}"))) {
            wrong.push(format!("{kernel}: fail gives {error:?}"));
        }
        create(&session, &query, 64, "skip").await;
        let default = match batches(&session, "p", RunConfig::default()).await {
            Ok(default) => default,
            Err(error) => {
                wrong.push(format!("{kernel}: skip gives {error}"));
                continue;
            }
        };
        if ids(&default) != others {
            wrong.push(format!("{kernel}: {} rows", ids(&default).len()));
        }
        let written = batches(&session, "p", without_plan()).await;
        if written.ok().map(|written| digest(&written)) != Some(digest(&default)) {
            wrong.push(format!("{kernel}: another stream as written"));
        }
        if number % 8 == 0 && of_ranks(&session, &query).await != others {
            wrong.push(format!("{kernel}: other rows with four ranks"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn predicates_and_keys_fail_for_one_row_too() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(dir.path(), &table(ROWS, |row| row == BAD), 100).await;
    let right = (0..100).map(|i| (i.to_string(), i));
    let (names, values): (Vec<_>, Vec<i64>) = right.unzip();
    let right = RecordBatch::try_from_iter([
        ("value", Arc::new(Int64Array::from(values)) as ArrayRef),
        ("name", Arc::new(StringArray::from(names)) as ArrayRef),
    ]);
    parquet(&dir.path().join("right/a.parquet"), &right.unwrap(), 100);
    let sql = format!(
        "CREATE EXTERNAL TABLE sides STORED AS PARQUET LOCATION '{}'",
        dir.path().join("right").display()
    );
    session.execute(&sql).await.unwrap();
    let queries = [
        "SELECT id FROM rows WHERE CAST(bytes AS VARCHAR) <> 'none'",
        "SELECT id FROM rows WHERE CAST(numbers AS BIGINT[])[1] >= 0 AND id >= 0",
        "SELECT id FROM rows WHERE repeat('a', large) = 'aaa'",
        "SELECT id, unnest(CAST(numbers AS BIGINT[])) AS x FROM rows",
        "SELECT id, name FROM rows JOIN sides ON CAST(number AS BIGINT) = value",
        "SELECT id, name FROM rows LEFT JOIN sides ON CAST(number AS BIGINT) = value",
    ];
    let others: Vec<i64> = (0..ROWS as i64).filter(|id| *id != BAD as i64).collect();
    for query in queries {
        create(&session, query, 64, "skip").await;
        let default = given(&session, query, RunConfig::default()).await;
        assert_eq!(ids(&default), others, "{query}");
        let written = given(&session, query, without_plan()).await;
        assert_eq!(digest(&default), digest(&written), "{query}");
        assert_eq!(of_ranks(&session, query).await, others, "{query}");
        create(&session, query, 64, "fail").await;
        let error = batches(&session, "p", RunConfig::default())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains(&format!("row {BAD}")),
            "{query}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_value_among_many_fails_one_row() {
    // The nightly run, which sets the variable, has 600,000 rows. Fewer rows test the same code
    // with fewer bisections of the batch.
    let rows = match std::env::var("FOREBAY_FUZZ_CASES") {
        Ok(_) => 600_000,
        Err(_) => 60_000,
    };
    let dir = tempfile::tempdir().unwrap();
    let at = rows * 2 / 3 + 1;
    let all = table(rows, |row| row == at);
    let columns = ["id", "number", "bytes", "numbers", "small"];
    let columns = columns.map(|name| all.schema().index_of(name).unwrap());
    let session = session(dir.path(), &all.project(&columns).unwrap(), rows / 5).await;
    let query = "SELECT id, CAST(number AS BIGINT) AS a, CAST(bytes AS VARCHAR) AS b,
                        CAST(numbers AS BIGINT[]) AS c, 10 / small AS d FROM rows";
    create(&session, query, 8_192, "skip").await;
    let others: Vec<i64> = (0..rows as i64).filter(|id| *id != at as i64).collect();
    let default = given(&session, query, RunConfig::default()).await;
    assert!(ids(&default) == others, "{} rows", ids(&default).len());
    assert!(of_ranks(&session, query).await == others);
}

#[tokio::test(flavor = "multi_thread")]
async fn constants_without_a_value_are_errors_of_the_rows_that_need_them() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(dir.path(), &table(ROWS, |_| false), 100).await;
    let bad = "CAST('x' AS BIGINT)";
    let huge = [
        "lpad('a', 11000000000)",
        "range(0, 300000000)",
        "array_resize([1], -4)",
    ];
    let mut cases = vec![
        (format!("SELECT id, {bad} AS x FROM rows"), 0),
        (format!("SELECT id, id + {bad} AS x FROM rows"), 0),
        (
            format!("SELECT id, CASE WHEN id < 0 THEN {bad} ELSE id END AS x FROM rows"),
            ROWS,
        ),
        (
            format!("SELECT id, CASE WHEN id >= 290 THEN {bad} END AS x FROM rows"),
            290,
        ),
        (
            format!("SELECT id, CASE id WHEN 7 THEN {bad} WHEN 8 THEN 1 END AS x FROM rows"),
            ROWS - 1,
        ),
        (
            format!("SELECT id, coalesce(id, {bad}) AS x FROM rows"),
            ROWS,
        ),
        (
            format!("SELECT id, nvl(nullif(id, 7), {bad}) AS x FROM rows"),
            ROWS - 1,
        ),
        (
            format!("SELECT id FROM (SELECT id, {bad} AS x FROM rows)"),
            ROWS,
        ),
        (
            format!("SELECT id FROM rows WHERE id < 5 AND id <> {bad}"),
            0,
        ),
        (
            format!("SELECT id FROM rows WHERE id < 5 OR CASE WHEN id > 295 THEN {bad} > 0 END"),
            5,
        ),
        ("SELECT id, 1 / 0 AS x FROM rows".to_owned(), 0),
        (
            "SELECT id, 1 / (1 - 1) + id AS x FROM rows WHERE id > 7".to_owned(),
            0,
        ),
    ];
    for huge in huge {
        cases.push((format!("SELECT id, {huge} AS x FROM rows"), 0));
        cases.push((
            format!("SELECT id, CASE WHEN id < 9 THEN {huge} END AS x FROM rows"),
            ROWS - 9,
        ));
    }
    for (query, rows) in cases {
        create(&session, &query, 64, "skip").await;
        let default = given(&session, &query, RunConfig::default()).await;
        assert_eq!(ids(&default).len(), rows, "{query}");
        let written = given(&session, &query, without_plan()).await;
        assert_eq!(digest(&default), digest(&written), "{query}");
        create(&session, &query, 64, "fail").await;
        let outcomes = [RunConfig::default(), without_plan()];
        for config in outcomes {
            let outcome = batches(&session, "p", config).await.map(|b| ids(&b).len());
            match outcome {
                Ok(found) => assert_eq!((found, rows), (ROWS, ROWS), "{query}"),
                Err(error) => assert!(error.to_string().contains("row "), "{query}: {error}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_fails_over_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(dir.path(), &table(ROWS, |_| false), 100).await;
    let queries = [
        "SELECT id, array_concat(numbers, numbers) AS x FROM rows WHERE id < 0",
        "SELECT id, CAST('x' AS BIGINT) AS x, 1 / 0 AS y FROM rows WHERE small % 2 = 0",
        "SELECT id, array_resize([1], -4) AS x FROM rows WHERE random_bool(0.00001)",
        "SELECT id, unnest(array_concat(numbers, numbers)) AS x FROM rows WHERE id < 0",
        "SELECT l.id, r.number FROM rows AS l JOIN rows AS r ON l.id = r.id WHERE l.id < 0 AND 1 / 0 = 1",
        "SELECT id FROM rows WHERE id < 0 AND CAST('x' AS BIGINT) = 1 AND lpad('a', 11000000000) = 'a'",
        "SELECT id, 10 / small AS x FROM rows WHERE id < 0 UNION ALL SELECT id, 1 / 0 AS x FROM rows WHERE id < -1",
    ];
    for query in queries {
        create(&session, query, 64, "fail").await;
        let default = given(&session, query, RunConfig::default()).await;
        assert_eq!(ids(&default).len(), 0, "{query}");
        given(&session, query, without_plan()).await;
    }
    let query = "SELECT id, array_concat(numbers, numbers) AS x FROM rows";
    create(&session, query, 64, "fail").await;
    let default = given(&session, query, RunConfig::default()).await;
    assert_eq!(ids(&default).len(), ROWS);
    let written = given(&session, query, without_plan()).await;
    assert_eq!(digest(&default), digest(&written));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_fit_into_one_column_are_computed_apart() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(dir.path(), &table(ROWS, |_| false), 300).await;
    // A segment has more distinct strings than there are 8-bit dictionary keys, but a batch has
    // fewer.
    let query =
        "SELECT id, arrow_cast(CAST(id AS VARCHAR), 'Dictionary(Int8, Utf8)') AS x FROM rows";
    create(&session, query, 50, "fail").await;
    let whole = RunConfig {
        internals: RunInternals {
            segment_rows: Some(ROWS as u64),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    let split = given(&session, query, whole).await;
    let all: Vec<i64> = (0..ROWS as i64).collect();
    assert_eq!(ids(&split), all);
    let small = RunConfig {
        internals: RunInternals {
            segment_rows: Some(10),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    assert_eq!(digest(&given(&session, query, small).await), digest(&split));
    // The same query with a filter, because of which the number of rows is known only after they
    // are computed.
    let query =
        "SELECT id, arrow_cast(CAST(id AS VARCHAR), 'Dictionary(Int8, Utf8)') AS x FROM rows
                 WHERE id % 2 = 0";
    create(&session, query, 50, "fail").await;
    let config = RunConfig {
        internals: RunInternals {
            segment_rows: Some(ROWS as u64),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    let evens = given(&session, query, config).await;
    assert_eq!(ids(&evens), (0..ROWS as i64).step_by(2).collect::<Vec<_>>());
    let values = evens.iter().flat_map(|batch| {
        let texts = arrow::compute::cast(batch.batch.column(1), &DataType::Utf8).unwrap();
        let texts = texts.as_string::<i32>().clone();
        (0..texts.len()).map(move |row| texts.value(row).parse::<i64>().unwrap())
    });
    assert_eq!(values.collect::<Vec<_>>(), ids(&evens));
}
