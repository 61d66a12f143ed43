use std::fs;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use forebay_planner::source::Format;

use super::*;
use crate::source::runs::SPLIT_ROWS;
use crate::source::testing::{open, read_all, spec};
use crate::source::{FileResolver, Source};

async fn open_text(
    text: impl AsRef<[u8]>,
    options: &[(&str, &str)],
) -> Result<(tempfile::TempDir, Arc<dyn Source>), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    fs::write(&path, text).unwrap();
    let source = open(Format::Csv, &path, options).await?;
    Ok((dir, source))
}

#[tokio::test]
async fn types_are_guessed_and_quoted_newlines_kept() {
    let text = "\u{feff}id,name,price,day,ok\r\n1,\"a, \"\"b\"\"\nc\",1.5,2026-11-20,true\r\n2,,7,,FALSE\r\n";
    let (_dir, source) = open_text(text, &[]).await.unwrap();
    let types: Vec<_> = source
        .schema()
        .fields()
        .iter()
        .map(|f| f.data_type().clone())
        .collect();
    use DataType::{Boolean, Date32, Float64, Int64, Utf8};
    assert_eq!(types, [Int64, Utf8, Float64, Date32, Boolean]);
    assert_eq!(source.schema().field(0).name(), "id");
    let (keys, batch) = read_all(&source, &[0, 1, 2, 3, 4], None).await.unwrap();
    assert_eq!(keys, [(0, 0), (0, 1)]);
    let names: Vec<_> = batch.column(1).as_string::<i32>().iter().collect();
    assert_eq!(names, [Some("a, \"b\"\nc"), None]);
    assert_eq!(
        batch.column(2).as_primitive::<Float64Type>().values(),
        &[1.5, 7.0]
    );
    assert!(batch.column(3).is_null(1));
    let (_, projected) = read_all(&source, &[4], None).await.unwrap();
    assert_eq!(projected.column(0), batch.column(4));
    let (_, nothing) = read_all(&source, &[], None).await.unwrap();
    assert_eq!(nothing.num_rows(), 2);
}

#[tokio::test]
async fn splits_are_runs_of_rows_wherever_the_newlines_are() {
    let rows = 2 * SPLIT_ROWS + 100;
    let mut text = "n,s\n".to_owned();
    for n in 0..rows {
        text += &format!("{n},\"line\n{n}\"\n{}", if n % 3 == 0 { "\n" } else { "" });
    }
    let (_dir, source) = open_text(&text, &[]).await.unwrap();
    let splits = &source.manifest().files[0].splits;
    let counts: Vec<_> = splits.iter().map(|s| (s.first_row, s.rows)).collect();
    assert_eq!(
        counts,
        [
            (0, SPLIT_ROWS),
            (SPLIT_ROWS, SPLIT_ROWS),
            (2 * SPLIT_ROWS, 100)
        ]
    );
    assert_eq!(
        splits.iter().map(|s| s.bytes).sum::<u64>(),
        text.len() as u64 - 4
    );
    let (keys, batch) = read_all(&source, &[0, 1], None).await.unwrap();
    assert!(keys.iter().zip(0..rows).all(|(key, n)| *key == (0, n)));
    let numbers = batch.column(0).as_primitive::<Int64Type>().values();
    assert!(numbers.iter().zip(0..).all(|(n, expected)| *n == expected));
    assert_eq!(batch.column(1).as_string::<i32>().value(9000), "line\n9000");
}

#[tokio::test]
async fn the_options_are_heard() {
    let options = [
        ("delimiter", ";"),
        ("header", "false"),
        ("null", "NA"),
        ("quote", "'"),
        ("comment", "#"),
    ];
    let (_dir, source) = open_text("# note\n1;'x;y'\nNA;NA\n3;\n", &options)
        .await
        .unwrap();
    assert_eq!(source.schema().field(1).name(), "column_2");
    let (_, batch) = read_all(&source, &[0, 1], None).await.unwrap();
    assert_eq!(batch.column(0).null_count(), 1);
    let text: Vec<_> = batch.column(1).as_string::<i32>().iter().collect();
    assert_eq!(text, [Some("x;y"), None, Some("")]);
    let (_dir, escaped) = open_text("a\n\"x\\\"y\"\n", &[("escape", "\\")])
        .await
        .unwrap();
    let (_, batch) = read_all(&escaped, &[0], None).await.unwrap();
    assert_eq!(batch.column(0).as_string::<i32>().value(0), "x\"y");
}

#[tokio::test]
async fn what_is_wrong_is_said_with_file_and_line() {
    let error = open_text("a,b\n1,2\n1,2,3\n", &[]).await.unwrap_err();
    assert!(
        error.contains("t.csv' is not a sound CSV file: line 3 has 3 fields where 2 were expected"),
        "{error}"
    );
    let error = open_text("a,b\n\"x\ny\",2\n1\n", &[]).await.unwrap_err();
    assert!(error.contains("line 4 has 1 fields"), "{error}");
    let error = open_text("a,b\r\n1,2\r\n1\r\n", &[]).await.unwrap_err();
    assert!(error.contains("line 3 has 1 fields"), "{error}");
    let error = open_text(b"a\n\xff\n", &[]).await.unwrap_err();
    assert!(error.contains("line 2 is not UTF-8"), "{error}");
    let error = open_text("", &[]).await.unwrap_err();
    assert!(error.contains("it is empty"), "{error}");
    let error = open_text("a,a\n1,2\n", &[]).await.unwrap_err();
    assert!(error.contains("two columns 'a'"), "{error}");
    let error = open_text("a\n1\n", &[("delim", ",")]).await.unwrap_err();
    assert!(error.contains("CSV has no option 'delim'"), "{error}");

    let (_dir, source) = open_text("a,b\n1,x\n2,y\noops,z\n", &[("infer_rows", "2")])
        .await
        .unwrap();
    let error = read_all(&source, &[0], None).await.unwrap_err();
    assert!(
        error.contains("line 4, column 'a': 'oops' is not a value of type Int64"),
        "{error}"
    );
    assert_eq!(read_all(&source, &[1], None).await.unwrap().0.len(), 3);
}

/// A quote that is not closed would turn all following rows into one value.
#[tokio::test]
async fn quotes_that_swallow_rows_are_errors() {
    let long: String = (0..60_000).map(|n| format!("{n},row {n}\n")).collect();
    for rest in ["3,z\n4,w\n", "", &long] {
        let error = open_text(format!("a,b\n1,x\n2,\"y\n{rest}"), &[])
            .await
            .unwrap_err();
        assert!(
            error.contains("t.csv' is not a sound CSV file: row 1: the quote that opens in line 3 is not closed"),
            "{error}"
        );
        assert!(
            error.contains("close it, or set the option quote"),
            "{error}"
        );
    }
    // Here the next quote in the file closes the value, so the joined record has the right number
    // of fields.
    let error = open_text("a,b\n1,\"x\n2,y\n3,\"z\"\n", &[])
        .await
        .unwrap_err();
    assert!(
        error.contains("row 0: line 4 has text behind a closing quote (the field opens in line 2)"),
        "{error}"
    );
    let error = open_text("a,\"b\n1,2\n", &[]).await.unwrap_err();
    assert!(error.contains("the quote that opens in line 1"), "{error}");
    // The same file is sound when the option `quote` names another character.
    let options = [("quote", "'")];
    let (_dir, source) = open_text("a,b\n1,x\n2,\"y\n3,z\n", &options).await.unwrap();
    assert_eq!(read_all(&source, &[1], None).await.unwrap().0.len(), 3);
}

#[tokio::test]
async fn no_row_is_lost_to_odd_bytes() {
    for (text, rows) in [
        ("a,b\n1,x", 1),
        ("a,b\r1,x\r2,y\r", 2),
        ("a,b\n1,x\0\n\0,y\n", 2),
        ("a,b\n1,\"\"\"\"\n2,\"x\"", 2),
        ("a,b\n1,5\" pipe\n2,y\n", 2),
    ] {
        let (_dir, source) = open_text(text, &[]).await.unwrap();
        let (keys, _) = read_all(&source, &[0, 1], None).await.unwrap();
        assert_eq!(keys.len(), rows, "{text:?}");
    }
    let options = [("escape", "\"")];
    let (_dir, source) = open_text("a\n\"x\"\"y\"\n", &options).await.unwrap();
    let (_, batch) = read_all(&source, &[0], None).await.unwrap();
    assert_eq!(batch.column(0).as_string::<i32>().value(0), "x\"y");
    // The file was cut off within a record.
    let error = open_text("a,b\n1,x\n2", &[]).await.unwrap_err();
    assert!(error.contains("line 3 has 1 fields"), "{error}");
}

#[tokio::test]
async fn guesses_join_the_files_of_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), "x,y\n1,a\n").unwrap();
    fs::write(dir.path().join("b.csv"), "x,y\n1.5,\n").unwrap();
    fs::write(dir.path().join("c.csv"), "x,y\n").unwrap();
    let source = open(Format::Csv, dir.path(), &[]).await.unwrap();
    assert_eq!(source.schema().field(0).data_type(), &DataType::Float64);
    assert_eq!(
        read_all(&source, &[0, 1], None).await.unwrap().0,
        [(0, 0), (1, 0)]
    );
    fs::write(dir.path().join("d.csv"), "x,z\n1,2\n").unwrap();
    let error = open(Format::Csv, dir.path(), &[]).await.unwrap_err();
    assert!(error.contains("column 2 is 'y' and 'z'"), "{error}");
}

#[tokio::test]
async fn declared_columns_rule() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    fs::write(&path, "1,2.5\n3,\n").unwrap();
    let mut spec = spec(Format::Csv, &path, &[("header", "false")]);
    let columns = |null| {
        let fields = vec![
            Field::new("a", DataType::Int8, false),
            Field::new("b", DataType::Float32, null),
        ];
        Some(Arc::new(Schema::new(fields)))
    };
    spec.columns = columns(true);
    let source = FileResolver::default().open(&spec).await.unwrap();
    let (_, batch) = read_all(&source, &[0, 1], None).await.unwrap();
    assert_eq!(
        batch.schema().fields(),
        spec.columns.as_ref().unwrap().fields()
    );
    spec.columns = columns(false);
    let source = FileResolver::default().open(&spec).await.unwrap();
    let error = read_all(&source, &[0, 1], None).await.unwrap_err();
    assert!(error.contains("line 2, column 'b': null"), "{error}");
    spec.options.clear();
    let error = FileResolver::default()
        .open(&spec)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has the columns 1, 2.5, where a, b were declared"),
        "{error}"
    );
}
