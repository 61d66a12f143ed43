//! Values in the child arrays of a null struct or list never appear in a result.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use arrow::ipc::writer::FileWriter;
use arrow::util::pretty::pretty_format_batches;
use forebay::{RunConfig, Session};

use crate::common::{batches, digest};

/// Writes four rows, with ids 0 to 3. Row 1 has a null struct whose fields contain `(garbage,
/// 'hidden')`, and a null list whose elements are `[7, 8]`. The fields of the struct are declared
/// non-nullable, which Arrow permits.
fn write(path: &Path, garbage: i64) {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 3]));
    let valid = NullBuffer::from(vec![true, false, true, true]);
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int64, false),
        Field::new("b", DataType::Utf8, false),
    ]);
    let a: ArrayRef = Arc::new(Int64Array::from(vec![10, garbage, 12, 13]));
    let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "hidden", "y", "z"]));
    let st: ArrayRef = Arc::new(StructArray::new(fields, vec![a, b], Some(valid.clone())));
    let items: ArrayRef = Arc::new(Int64Array::from(vec![1, garbage, 8, 3, 4, 5]));
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let offsets = OffsetBuffer::from_lengths([1, 2, 0, 3]);
    let l: ArrayRef = Arc::new(ListArray::new(item, offsets, items, Some(valid)));
    let columns = [("id", ids), ("st", st), ("l", l)];
    let fields = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

async fn run(path: &Path, query: &str, optimize: &str) -> Vec<RecordBatch> {
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS ARROW LOCATION '{}';
         CREATE PIPELINE p AS {query} OPTIONS (optimize = '{optimize}')",
        path.display()
    );
    session
        .execute(&sql)
        .await
        .unwrap_or_else(|error| panic!("{query}: {error}"));
    let batches = batches(&session, "p", RunConfig::default()).await.unwrap();
    batches.iter().map(|batch| batch.batch.clone()).collect()
}

/// Returns the rows of a query. Panics if the optimised and the written plan differ, or if the
/// hidden values change the rows.
async fn rows(query: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for garbage in [11, -1, i64::MAX] {
        let path = dir.path().join("t.arrow");
        write(&path, garbage);
        for optimize in ["default", "none"] {
            let batches = run(&path, query, optimize).await;
            all.push(pretty_format_batches(&batches).unwrap().to_string());
        }
    }
    all.dedup();
    assert_eq!(all.len(), 1, "{query}: {all:#?}");
    all.remove(0)
}

async fn ints(query: &str) -> Vec<Option<i64>> {
    rows(query).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, 11);
    let batches = run(&path, query, "default").await;
    let of = |batch: &RecordBatch| {
        let column = arrow::compute::cast(batch.column(0), &DataType::Int64).unwrap();
        column
            .as_primitive::<Int64Type>()
            .iter()
            .collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}

#[tokio::test]
async fn the_field_of_a_null_struct_is_null() {
    let whole = [Some(10), None, Some(12), Some(13)];
    assert_eq!(ints("SELECT st['a'] AS x FROM t").await, whole);
    let case = ints("SELECT (CASE WHEN id > 2 THEN st END)['a'] AS x FROM t").await;
    assert_eq!(case, [None, None, None, Some(13)]);
    assert_eq!(
        ints("SELECT nullif(st, st)['a'] AS x FROM t").await,
        [None; 4]
    );
    let constant = "SELECT nullif(named_struct('a', 1), named_struct('a', 1))['a'] AS x FROM t";
    assert_eq!(ints(constant).await, [None; 4]);
    let above = "SELECT u.s['a'] AS x FROM (SELECT id, nullif(st, st) AS s FROM t) AS u WHERE u.s['a'] IS NULL";
    assert_eq!(ints(above).await, [None; 4]);
    let filtered = "SELECT id FROM t WHERE (CASE WHEN id <> 2 THEN st END)['a'] > 0";
    assert_eq!(ints(filtered).await, [Some(0), Some(3)]);
    let joined = "SELECT v.st['a'] AS x FROM t LEFT JOIN t AS v ON t.id = v.id + 1";
    assert_eq!(ints(joined).await, [None, Some(10), None, Some(12)]);
    let keyed = "SELECT t.id FROM t JOIN t AS v ON t.st['a'] = v.st['a']";
    assert_eq!(ints(keyed).await, [Some(0), Some(2), Some(3)]);
}

#[tokio::test]
async fn a_null_list_has_no_elements() {
    insta::assert_snapshot!(
        rows("SELECT array_append(l, 7) AS a, array_prepend(7, l) AS p, array_concat(l, [9]) AS c, l[1] AS e,
                     array_length(l) AS n, CAST(l AS VARCHAR[]) AS s FROM t").await, @r"
    +--------------+--------------+--------------+---+---+-----------+
    | a            | p            | c            | e | n | s         |
    +--------------+--------------+--------------+---+---+-----------+
    | [1, 7]       | [7, 1]       | [1, 9]       | 1 | 1 | [1]       |
    | [7]          | [7]          | [9]          |   |   |           |
    | [7]          | [7]          | [9]          |   | 0 | []        |
    | [3, 4, 5, 7] | [7, 3, 4, 5] | [3, 4, 5, 9] | 3 | 3 | [3, 4, 5] |
    +--------------+--------------+--------------+---+---+-----------+
    ");
    insta::assert_snapshot!(
        rows("SELECT array_append(nullif(l, l), id) AS a, array_append(CASE WHEN id = 0 THEN l END, 7) AS b FROM t").await, @r"
    +-----+--------+
    | a   | b      |
    +-----+--------+
    | [0] | [1, 7] |
    | [1] | [7]    |
    | [2] | [7]    |
    | [3] | [7]    |
    +-----+--------+
    ");
    assert_eq!(
        ints("SELECT unnest(l) AS x FROM t").await,
        [Some(1), Some(3), Some(4), Some(5)]
    );
    rows("SELECT id, l FROM t BATCH 4 PAD l").await;
    rows("SELECT id, l FROM t PACK l INTO 4 BATCH 2").await;
    rows("SELECT id, l FROM t BATCH BY TOKENS 3 ON l").await;
}

#[tokio::test]
async fn hidden_values_are_neither_in_the_digest_nor_in_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let mut digests = Vec::new();
    for garbage in [1, 2] {
        let path = dir.path().join("t.arrow");
        write(&path, garbage);
        let session = Session::new();
        let sql = format!(
            "CREATE EXTERNAL TABLE t STORED AS ARROW LOCATION '{}'; CREATE PIPELINE p AS SELECT * FROM t",
            path.display()
        );
        session.execute(&sql).await.unwrap();
        let batches = batches(&session, "p", RunConfig::default()).await.unwrap();
        digests.push(digest(&batches));
        let batch = &batches[0].batch;
        assert_eq!(batch.column(1).as_struct().column(0).null_count(), 1);
        assert_eq!(batch.column(2).as_list::<i32>().values().len(), 4);
    }
    assert_eq!(digests[0], digests[1]);
}
