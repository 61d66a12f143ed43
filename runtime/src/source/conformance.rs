//! Tests of the guarantees that every source gives, over a table of formats with the same logical
//! rows.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::DataType;
use arrow::ipc::writer::FileWriter;
use arrow_avro::writer::AvroWriter;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use flate2::write::GzEncoder;
use forebay_planner::source::Format;
use futures::TryStreamExt;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::testing::{open, read_all, spec, tar};
use super::{Access, FileResolver, Scan, Source};

/// Number of rows in the first file (`FIRST`), and in both files together (`ROWS`).
const FIRST: usize = 70;
const ROWS: usize = 100;

/// Files, each as (path below the data folder, bytes).
type NamedBytes = Vec<(String, Vec<u8>)>;

/// A format, with a function that writes rows in this format. Each row holds a text.
struct Case {
    format: Format,
    name: &'static str,
    /// The column that holds the texts.
    column: &'static str,
    access: Access,
    /// True when opening or reading a file that is cut off gives an error.
    has_end: bool,
    /// True when opening a file reads enough of its content to tell different texts apart.
    reads_content: bool,
    /// Writes a row for each of `texts`. Returns the files, each as (path below the data folder,
    /// bytes). `first` is the id of the first row.
    files: fn(first: usize, texts: &[String]) -> NamedBytes,
}

fn batch(first: usize, texts: &[String]) -> RecordBatch {
    let ids = Int64Array::from_iter_values((first as i64..).take(texts.len()));
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(ids)),
        ("text", Arc::new(StringArray::from_iter_values(texts))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn one(name: &str, first: usize, bytes: Vec<u8>) -> NamedBytes {
    vec![(format!("part-{first:04}.{name}"), bytes)]
}

fn lines(first: usize, texts: &[String], line: fn(usize, &str) -> String) -> Vec<u8> {
    let lines = texts.iter().zip(first..).map(|(text, id)| line(id, text));
    lines.collect::<String>().into_bytes()
}

fn parquet(first: usize, texts: &[String]) -> NamedBytes {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(30))
        .build();
    let rows = batch(first, texts);
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    one("parquet", first, writer.into_inner().unwrap())
}

fn arrow(first: usize, texts: &[String]) -> NamedBytes {
    let rows = batch(first, texts);
    let mut writer = FileWriter::try_new(Vec::new(), &rows.schema()).unwrap();
    for start in (0..rows.num_rows()).step_by(30) {
        writer
            .write(&rows.slice(start, 30.min(rows.num_rows() - start)))
            .unwrap();
    }
    one("arrow", first, writer.into_inner().unwrap())
}

fn avro(first: usize, texts: &[String]) -> NamedBytes {
    let rows = batch(first, texts);
    let mut writer = AvroWriter::new(Vec::new(), rows.schema().as_ref().clone()).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    one("avro", first, writer.into_inner())
}

fn shard(first: usize, texts: &[String]) -> Vec<u8> {
    let names = (first..).map(|id| {
        (
            format!("{id:04}.cls"),
            id.to_string(),
            format!("{id:04}.txt"),
        )
    });
    let names: Vec<_> = names.take(texts.len()).collect();
    let entries = names.iter().zip(texts).flat_map(|((cls, id, txt), text)| {
        [
            (cls.as_str(), id.as_bytes()),
            (txt.as_str(), text.as_bytes()),
        ]
    });
    tar(&entries.collect::<Vec<_>>())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn images(first: usize, texts: &[String]) -> NamedBytes {
    let files = texts.iter().zip(first..);
    files
        .map(|(text, id)| (format!("c/{id:04}.png"), text.clone().into_bytes()))
        .collect()
}

const CASES: [Case; 8] = [
    Case {
        format: Format::ImageFolder,
        name: "images",
        column: "image",
        access: Access::Direct,
        has_end: false,
        reads_content: false,
        files: images,
    },
    Case {
        format: Format::Parquet,
        name: "parquet",
        column: "text",
        access: Access::Staged,
        has_end: true,
        reads_content: true,
        files: parquet,
    },
    Case {
        format: Format::Csv,
        name: "csv",
        column: "text",
        access: Access::Staged,
        has_end: false,
        reads_content: true,
        files: |first, texts| {
            let rows = lines(first, texts, |id, text| format!("{id},{text}\n"));
            one("csv", first, [b"id,text\n".to_vec(), rows].concat())
        },
    },
    Case {
        format: Format::Json,
        name: "json",
        column: "text",
        access: Access::Staged,
        has_end: false,
        reads_content: true,
        files: |first, texts| {
            let line = |id: usize, text: &str| format!("{{\"id\": {id}, \"text\": \"{text}\"}}\n");
            one("json", first, lines(first, texts, line))
        },
    },
    Case {
        format: Format::Arrow,
        name: "arrow",
        column: "text",
        access: Access::Staged,
        has_end: true,
        reads_content: true,
        files: arrow,
    },
    Case {
        format: Format::Avro,
        name: "avro",
        column: "text",
        access: Access::Staged,
        has_end: false,
        reads_content: true,
        files: avro,
    },
    Case {
        format: Format::WebDataset,
        name: "tar",
        column: "txt",
        access: Access::Direct,
        has_end: true,
        reads_content: true,
        files: |first, texts| one("tar", first, shard(first, texts)),
    },
    Case {
        format: Format::WebDataset,
        name: "tar.gz",
        column: "txt",
        access: Access::Staged,
        has_end: true,
        reads_content: true,
        files: |first, texts| one("tar.gz", first, gzip(&shard(first, texts))),
    },
];

/// Returns one text per row. All texts have the same length, and their sorted order differs from
/// the order of the rows.
fn texts() -> Vec<String> {
    (0..ROWS)
        .map(|id| format!("text {:03} of {id:03}", id * 37 % ROWS))
        .collect()
}

/// The files of a case, in a temporary folder.
struct Data {
    folder: tempfile::TempDir,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Case {
    fn write(&self, texts: &[String]) -> Data {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (first, end) in [(0, FIRST), (FIRST, ROWS)] {
            for (name, bytes) in (self.files)(first, &texts[first..end]) {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &bytes).unwrap();
                files.push((path, bytes));
            }
        }
        Data { folder, files }
    }

    async fn open(&self, data: &Data) -> Result<Arc<dyn Source>, String> {
        open(self.format, data.folder.path(), &[]).await
    }

    /// Returns the index of the column that holds the texts.
    fn column(&self, source: &Arc<dyn Source>) -> usize {
        source.schema().index_of(self.column).unwrap()
    }

    /// Reads all rows split by split, and also by reference when the source supports that.
    async fn read(&self, source: &Arc<dyn Source>) -> Result<(), String> {
        let column = self.column(source);
        let (keys, _) = read_all(source, &[column], None).await?;
        if self.access == Access::Direct {
            let rows: Vec<(u32, u64)> =
                keys.iter().map(|&(file, row)| (file as u32, row)).collect();
            let fetched = source
                .fetch(&rows, &[column])
                .await
                .map_err(|error| error.to_string());
            if let Some(error) = fetched?.1.into_iter().next() {
                return Err(error.cause);
            }
        }
        Ok(())
    }
}

fn values(column: &ArrayRef) -> Vec<String> {
    let column = cast(column, &DataType::Binary).unwrap();
    let values = column.as_binary::<i32>().iter();
    values
        .map(|value| String::from_utf8(value.unwrap().to_vec()).unwrap())
        .collect()
}

fn every_column(source: &Arc<dyn Source>) -> Vec<usize> {
    (0..source.schema().fields().len()).collect()
}

fn write_later(path: &Path, bytes: &[u8], seconds: u64) {
    fs::write(path, bytes).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(seconds))
        .unwrap();
}

#[test]
fn every_format_is_in_the_table() {
    for format in Format::ALL {
        assert!(CASES.iter().any(|case| case.format == *format), "{format}");
    }
}

#[tokio::test]
async fn manifest_splits_and_rows_agree() {
    for case in &CASES {
        let data = case.write(&texts());
        let source = case.open(&data).await.unwrap();
        let name = case.name;
        assert_eq!(
            source.spec(),
            &spec(case.format, data.folder.path(), &[]),
            "{name}"
        );
        assert_eq!(source.access(), case.access, "{name}");
        let manifest = source.manifest();
        assert_eq!(manifest.files.len(), data.files.len(), "{name}");
        for (file, (path, bytes)) in manifest.files.iter().zip(&data.files) {
            assert_eq!(&data.folder.path().join(&file.path), path, "{name}");
            assert_eq!(file.size, bytes.len() as u64, "{name}");
            assert!(file.modified.is_some(), "{name}");
            let mut next = 0;
            for split in &file.splits {
                assert_eq!(split.first_row, next, "{name}");
                assert!(split.rows > 0, "{name}");
                next += split.rows;
            }
            assert_eq!(file.rows(), next, "{name}");
        }
        // `read_all` also checks the rows of each split, and that row numbers ascend.
        let all = every_column(&source);
        let (keys, batch) = read_all(&source, &all, None).await.unwrap();
        assert_eq!(keys.len(), ROWS, "{name}");
        assert_eq!(batch.schema().fields(), source.schema().fields(), "{name}");
        assert_eq!(
            values(batch.column(case.column(&source))),
            texts(),
            "{name}"
        );
        for column in all {
            let (of_column, one) = read_all(&source, &[column], None).await.unwrap();
            assert_eq!(
                (of_column, one),
                (keys.clone(), batch.project(&[column]).unwrap()),
                "{name}"
            );
        }
        let (of_none, none) = read_all(&source, &[], None).await.unwrap();
        assert_eq!(
            (of_none, none.num_columns(), none.num_rows()),
            (keys, 0, ROWS),
            "{name}"
        );
    }
}

#[tokio::test]
async fn pruning_keeps_every_row_that_passes() {
    for case in &CASES {
        let data = case.write(&texts());
        let source = case.open(&data).await.unwrap();
        let column = case.column(&source);
        let (all, _) = read_all(&source, &[column], None).await.unwrap();
        for limit in ["", "text 000", "text 050 of 050", "text 099", "zzz"] {
            let literal = match source.schema().field(column).data_type() {
                DataType::Utf8 => ScalarValue::Utf8(Some(limit.to_owned())),
                _ => ScalarValue::Binary(Some(limit.as_bytes().to_vec())),
            };
            for (operator, passes) in [
                (
                    Operator::Lt,
                    (|text, limit| text < limit) as fn(&str, &str) -> bool,
                ),
                (Operator::GtEq, |text, limit| text >= limit),
                (Operator::Eq, |text, limit| text == limit),
            ] {
                let left = Arc::new(Column::new(case.column, column));
                let right = Arc::new(Literal::new(literal.clone()));
                let predicate: Arc<dyn PhysicalExpr> =
                    Arc::new(BinaryExpr::new(left, operator, right));
                let (kept, _) = read_all(&source, &[column], Some(predicate)).await.unwrap();
                for (key, text) in all.iter().zip(texts()) {
                    assert!(
                        kept.contains(key) || !passes(&text, limit),
                        "{}: {text} {operator} {limit}",
                        case.name
                    );
                }
                assert!(kept.iter().all(|key| all.contains(key)), "{}", case.name);
            }
        }
    }
}

#[tokio::test]
async fn rows_by_reference_come_in_the_order_asked_for() {
    for case in &CASES {
        let data = case.write(&texts());
        let source = case.open(&data).await.unwrap();
        let all = every_column(&source);
        let (keys, batch) = read_all(&source, &all, None).await.unwrap();
        let order: Vec<u64> = (0..2 * ROWS as u64)
            .map(|n| n * n * 31 % ROWS as u64)
            .collect();
        let rows = order.iter().map(|&at| keys[at as usize]);
        let rows: Vec<(u32, u64)> = rows.map(|(file, row)| (file as u32, row)).collect();
        for projection in [all.as_slice(), &all[1..2], &[]] {
            let fetched = source.fetch(&rows, projection).await;
            if case.access == Access::Staged {
                assert!(fetched.is_err(), "{}", case.name);
                continue;
            }
            let (found, errors) = fetched.unwrap();
            assert_eq!(errors, [], "{}", case.name);
            let indices = UInt64Array::from(order.clone());
            let expected = take_record_batch(&batch, &indices)
                .unwrap()
                .project(projection)
                .unwrap();
            assert_eq!(found, expected, "{}", case.name);
            let (nothing, _) = source.fetch(&[], projection).await.unwrap();
            assert_eq!(nothing.num_rows(), 0, "{}", case.name);
        }
        // A request for a row that does not exist is an error, not a panic.
        assert!(
            source.fetch(&[(0, 1 << 40)], &all).await.is_err(),
            "{}",
            case.name
        );
        assert!(
            source.fetch(&[(99_999, 0)], &all).await.is_err(),
            "{}",
            case.name
        );
        let scan = Scan {
            projection: all,
            prune: None,
            keep: None,
        };
        let read: Result<Vec<_>, _> = source.read_split(99_999, 0, &scan).try_collect().await;
        assert!(read.is_err(), "{}", case.name);
    }
}

#[tokio::test]
async fn content_is_identified() {
    for case in &CASES {
        let data = case.write(&texts());
        let manifest = Arc::clone(case.open(&data).await.unwrap().manifest());
        assert_eq!(
            case.open(&data).await.unwrap().manifest(),
            &manifest,
            "{}",
            case.name
        );
        let mut others = texts();
        others.swap(FIRST, FIRST + 1);
        if !case.reads_content {
            others[FIRST].push('+');
        }
        let other = case.write(&others);
        let source = case.open(&other).await.unwrap();
        let identities = |of: &super::Manifest| -> Vec<[u8; 32]> {
            of.files.iter().map(|file| file.identity()).collect()
        };
        assert_ne!(
            identities(source.manifest()),
            identities(&manifest),
            "{}",
            case.name
        );
    }
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_open_is_named() {
    for case in &CASES {
        let data = case.write(&texts());
        let (path, bytes) = data.files.last().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let source = case.open(&data).await.unwrap();
        write_later(path, bytes, 10);
        case.read(&source).await.unwrap();

        let source = case.open(&data).await.unwrap();
        if case.reads_content {
            let mut others = texts();
            others.swap(ROWS - 2, ROWS - 1);
            let other = case.write(&others);
            write_later(path, &other.files.last().unwrap().1, 20);
            let error = case.read(&source).await.unwrap_err();
            let is_named =
                error.contains(name) && error.contains("changed since the source was opened");
            assert!(is_named, "{}: {error}", case.name);
        }
        for change in [
            &bytes[..bytes.len() - 1],
            &[bytes.as_slice(), b"\n"].concat(),
        ] {
            write_later(path, bytes, 30);
            let source = case.open(&data).await.unwrap();
            write_later(path, change, 40);
            let error = case.read(&source).await.unwrap_err();
            assert!(
                error.contains(name) && error.contains("changed since"),
                "{}: {error}",
                case.name
            );
        }
        write_later(path, bytes, 50);
        let source = case.open(&data).await.unwrap();
        fs::remove_file(path).unwrap();
        let error = case.read(&source).await.unwrap_err();
        assert!(
            error.contains(name) && error.contains("cannot read"),
            "{}: {error}",
            case.name
        );
    }
}

#[tokio::test]
async fn missing_and_damaged_files_are_named() {
    for case in &CASES {
        let data = case.write(&texts());
        let missing = data.folder.path().join("missing");
        let error = open(case.format, &missing, &[]).await.unwrap_err();
        assert!(error.contains("missing'"), "{}: {error}", case.name);
        let (path, bytes) = data.files.last().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let read = async |bytes: &[u8]| {
            fs::write(path, bytes).unwrap();
            match case.open(&data).await {
                Ok(source) => case.read(&source).await,
                Err(error) => Err(error),
            }
        };
        for part in 0..20 {
            let length = bytes.len() * part / 20;
            match read(&bytes[..length]).await {
                Ok(()) => assert!(!case.has_end, "{}: cut off at {length}", case.name),
                Err(error) => assert!(error.contains(name), "{}: {error}", case.name),
            }
        }
        for at in (0..bytes.len()).step_by(bytes.len().div_ceil(60)) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            // Damage is an error or goes unnoticed in this test, but never causes a panic.
            let _ = read(&damaged).await;
        }
    }
}

#[tokio::test]
async fn unknown_options_are_refused() {
    for case in &CASES {
        let data = case.write(&texts());
        let spec = spec(case.format, data.folder.path(), &[("no_such_option", "1")]);
        let error = FileResolver::default()
            .open(&spec)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no option 'no_such_option'"),
            "{}: {error}",
            case.name
        );
    }
}
