//! `JSON`: files with one JSON object per line; a split is a range of consecutive rows.
//!
//! When the source is opened, one scan parses every line, so that all data decide the types of
//! columns, and a broken line is found before training starts. Columns are in the order in which
//! the scan first meets them; columns that first appear in the same object are sorted by name.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema_from_iterator;
use datafusion::common::Result;
use forebay_planner::source::SourceSpec;
use serde_json::Value;

use super::content::{ContentHash, ContentHasher, HashedRead};
use super::error::SourceError;
use super::file_source::{FileRows, FileSource, SplitReader};
use super::input::{Input, InputFile};
use super::listing::{WantedFiles, list};
use super::options::SourceOptions;
use super::reader::{SourceReader, boxed};
use super::runs::{Runs, Start};
use super::split_location::SplitLocation;
use super::stream::{BATCH_BYTES, BATCH_ROWS, Emit, guarded};
use super::{Scan, StoredRows};
use crate::objects::ObjectStores;
use crate::task;

const FORMAT: &str = "JSON";

/// Maximum size of a line in bytes; a longer line is an error.
const MAX_LINE_BYTES: u64 = 64 << 20;

const READ_BYTES: usize = 256 << 10;

pub(super) static READER: SourceReader = SourceReader {
    files: WantedFiles {
        noun: "JSON lines",
        extensions: &["json", "jsonl", "ndjson"],
        strict: false,
    },
    options: &[],
    open: |spec, stores| boxed(open(spec, stores)),
};

/// Opens files of JSON lines, and scans each file once. The format has no options.
pub(crate) async fn open(spec: &SourceSpec, stores: &ObjectStores) -> Result<FileSource> {
    SourceOptions::new(spec, READER.options)?;
    let listing = list(&spec.location, &READER.files, stores).await?;
    let files: Vec<InputFile> = { listing.files.iter() }
        .map(|listed| listed.file.clone())
        .collect();
    let declared = spec.columns.clone();
    let (schema, scanned) = task::blocking("opening the source", move || {
        let first = files.first().map(InputFile::name).unwrap_or_default();
        guarded(&first, FORMAT, || Ok(scan_all(&files, declared)?))
    })
    .await??;
    let (rows, starts) = scanned
        .into_iter()
        .map(|(content, file)| {
            let splits = file.splits;
            (FileRows { content, splits }, file.starts)
        })
        .unzip();
    let reader = Arc::new(JsonReader {
        schema: Arc::clone(&schema),
        starts,
    });
    Ok(FileSource::new(spec, schema, listing, rows, reader))
}

/// Reads the lines of a JSON file that are not blank.
struct Lines<R> {
    input: R,
    text: Vec<u8>,
    offset: u64,
    /// Number of the line in `text`, from 1.
    line: u64,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader of lines. The next byte of `input` must be the byte at `start.offset` in
    /// the file, where the line `start.line` begins.
    fn new(input: R, start: Start) -> Self {
        Self {
            input,
            text: Vec::new(),
            offset: start.offset,
            line: start.line - 1,
        }
    }

    /// Returns the next line that is not blank, with its start in the file; `None` at the end.
    fn next(&mut self) -> Result<Option<(Start, &[u8])>, String> {
        loop {
            self.text.clear();
            let mut limited = (&mut self.input).take(MAX_LINE_BYTES + 1);
            let read = limited
                .read_until(b'\n', &mut self.text)
                .map_err(|e| e.to_string())? as u64;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            let start = Start {
                offset: self.offset,
                line: self.line,
            };
            self.offset += read;
            if read > MAX_LINE_BYTES {
                return Err(format!(
                    "line {} is longer than {MAX_LINE_BYTES} bytes",
                    self.line
                ));
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(Some((start, &self.text)));
            }
        }
    }
}

/// Begins the hash of the content of a JSON file.
fn hasher() -> ContentHasher {
    ContentHasher::new(FORMAT, "")
}

/// Iterates over the objects in all files, and records where splits begin.
struct Objects<'a> {
    files: std::slice::Iter<'a, InputFile>,
    open: Option<(PathBuf, Lines<BufReader<HashedRead<Input>>>)>,
    scanned: Vec<(ContentHash, Runs)>,
    runs: Runs,
    failed: Option<SourceError>,
}

impl Objects<'_> {
    fn try_next(&mut self) -> Result<Option<Value>, SourceError> {
        loop {
            let Some((path, lines)) = &mut self.open else {
                let Some(file) = self.files.next() else {
                    return Ok(None);
                };
                let path = file.name();
                let (mut input, size) = file.open()?;
                input
                    .read_only(0..size)
                    .map_err(|error| SourceError::unreadable(&path, error))?;
                let input = HashedRead::new(input, hasher());
                let input = BufReader::with_capacity(READ_BYTES, input);
                let lines = Lines::new(input, Start { offset: 0, line: 1 });
                self.open = Some((path, lines));
                continue;
            };
            let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
            let Some((start, text)) = lines.next().map_err(damaged)? else {
                let content = lines.input.get_ref().hash();
                self.scanned.push((content, std::mem::take(&mut self.runs)));
                self.open = None;
                continue;
            };
            let object = parse(text).map_err(|e| damaged(format!("line {}: {e}", start.line)))?;
            let end = start.offset + text.len() as u64;
            self.runs.push(start, end);
            return Ok(Some(object));
        }
    }
}

impl Iterator for Objects<'_> {
    type Item = Result<Value, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.try_next().transpose().map(|object| {
            object.map_err(|error| {
                let cause = error.to_string();
                self.failed = Some(error);
                ArrowError::JsonError(cause)
            })
        })
    }
}

/// Parses a line as a JSON object. The error names the cause.
fn parse(line: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(line) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(Value::Array(_)) => {
            Err("an array where an object was expected; put one object on each line".to_owned())
        }
        Ok(_) => Err("a single value where an object such as {\"a\": 1} was expected".to_owned()),
        Err(_) if line.trim_ascii() == b"[" || line.trim_ascii() == b"{" => {
            Err("a JSON document over several lines; put one object on each line".to_owned())
        }
        Err(error) => {
            // The parser gets a single line, so the line number in its error is always 1.
            let text = error.to_string();
            let cause = text.split(" at line ").next().unwrap_or(&text);
            Err(format!("column {}: {cause}", error.column()))
        }
    }
}

fn scan_all(
    files: &[InputFile],
    declared: Option<SchemaRef>,
) -> Result<(SchemaRef, Vec<(ContentHash, Runs)>), SourceError> {
    let mut objects = Objects {
        files: files.iter(),
        open: None,
        scanned: Vec::new(),
        runs: Runs::default(),
        failed: None,
    };
    let schema = match declared {
        Some(declared) => {
            while objects.try_next()?.is_some() {}
            declared
        }
        None => {
            let inferred = infer_json_schema_from_iterator(&mut objects);
            if let Some(error) = objects.failed {
                return Err(error);
            }
            let inferred = inferred.map_err(|error| {
                let at = objects
                    .open
                    .as_ref()
                    .map_or_else(String::new, |(path, lines)| {
                        format!(" ('{}', line {})", path.display(), lines.line)
                    });
                SourceError::Schema(format!(
                    "the JSON lines do not have one type for each column{at}: {error}"
                ))
            })?;
            Arc::new(inferred)
        }
    };
    Ok((schema, objects.scanned))
}

#[derive(Debug)]
struct JsonReader {
    schema: SchemaRef,
    /// For each file, the starts of its splits.
    starts: Vec<Vec<Start>>,
}

impl SplitReader for JsonReader {
    fn content(&self, file: &InputFile) -> Result<ContentHash, SourceError> {
        hasher().whole_file(file)
    }

    fn read(&self, place: &SplitLocation, scan: &Scan, emit: &Emit) -> Result<()> {
        let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
        let start = self.starts[place.file][place.split];
        let mut file = place.open()?;
        file.read_only(start.offset..start.offset + place.rows.bytes)
            .map_err(|error| SourceError::unreadable(&place.path, error))?;
        let mut lines = Lines::new(BufReader::with_capacity(READ_BYTES, file), start);
        let schema = Arc::new(self.schema.project(&scan.projection)?);
        let mut chunk = LineChunk::default();
        let mut first = place.rows.first_row;
        let end = place.rows.first_row + place.rows.rows;
        for row in place.rows.first_row..end {
            let Some((at, text)) = lines.next().map_err(damaged)? else {
                return Err(damaged(format!(
                    "it ends after {row} rows, but had more when the source was opened"
                ))
                .into());
            };
            chunk.push(at.line, text);
            if chunk.bytes.len() as u64 >= BATCH_BYTES
                || chunk.lines.len() >= BATCH_ROWS
                || row + 1 == end
            {
                let batch = chunk.decode(&schema).map_err(damaged)?;
                let numbers = (first..=row).collect();
                first = row + 1;
                chunk = LineChunk::default();
                if !emit.send(StoredRows { batch, numbers }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Lines that are collected for a batch.
#[derive(Debug, Default)]
struct LineChunk {
    bytes: Vec<u8>,
    /// For each line, its number in the file, and the end of its bytes in `bytes`.
    lines: Vec<(u64, usize)>,
}

impl LineChunk {
    fn push(&mut self, line: u64, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        if !text.ends_with(b"\n") {
            self.bytes.push(b'\n');
        }
        self.lines.push((line, self.bytes.len()));
    }

    /// Decodes the lines as rows of `schema`. The error names the first wrong line and the cause.
    fn decode(&self, schema: &SchemaRef) -> Result<RecordBatch, String> {
        decode(schema, &self.bytes, self.lines.len()).map_err(|whole| {
            let mut start = 0;
            for &(line, end) in &self.lines {
                if let Err(error) = decode(schema, &self.bytes[start..end], 1) {
                    return format!("line {line}: {error}");
                }
                start = end;
            }
            whole.to_string()
        })
    }
}

fn decode(schema: &SchemaRef, bytes: &[u8], rows: usize) -> Result<RecordBatch, ArrowError> {
    let mut decoder = ReaderBuilder::new(Arc::clone(schema))
        // If a column has text in one row and a number in another, the scan inferred text.
        .with_coerce_primitive(true)
        .with_batch_size(rows)
        .build_decoder()?;
    let mut read = 0;
    while read < bytes.len() {
        match decoder.decode(&bytes[read..])? {
            0 => break,
            more => read += more,
        }
    }
    match decoder.flush()? {
        Some(batch) if batch.num_rows() == rows => Ok(batch),
        batch => Err(ArrowError::JsonError(format!(
            "{} rows in {rows} lines",
            batch.map_or(0, |batch| batch.num_rows())
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Field, Float64Type, Schema};
    use forebay_planner::source::Format;

    use super::*;
    use crate::source::runs::SPLIT_ROWS;
    use crate::source::testing::{open, read_all, spec};
    use crate::source::{FileResolver, Source};

    async fn open_text(text: &str) -> Result<(tempfile::TempDir, Arc<dyn Source>), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        fs::write(&path, text).unwrap();
        let source = open(Format::Json, &path, &[]).await?;
        Ok((dir, source))
    }

    #[tokio::test]
    async fn types_come_from_all_lines_and_blank_lines_are_none() {
        let text = "{\"a\": 1, \"s\": \"x\", \"l\": [1, 2]}\n\n  \r\n{\"a\": 2.5, \"o\": {\"k\": true}}\n{\"s\": 7}";
        let (_dir, source) = open_text(text).await.unwrap();
        let columns: Vec<_> = (0..source.schema().fields().len()).collect();
        let (keys, batch) = read_all(&source, &columns, None).await.unwrap();
        assert_eq!(keys, [(0, 0), (0, 1), (0, 2)]);
        let a = batch
            .column_by_name("a")
            .unwrap()
            .as_primitive::<Float64Type>();
        assert_eq!(a.iter().collect::<Vec<_>>(), [Some(1.0), Some(2.5), None]);
        let s = batch.column_by_name("s").unwrap().as_string::<i32>();
        assert_eq!(s.iter().collect::<Vec<_>>(), [Some("x"), None, Some("7")]);
        let at = source.schema().index_of("o").unwrap();
        let (_, projected) = read_all(&source, &[at], None).await.unwrap();
        assert_eq!(projected.column(0), batch.column(at));
        let (_, nothing) = read_all(&source, &[], None).await.unwrap();
        assert_eq!(nothing.num_rows(), 3);
    }

    #[tokio::test]
    async fn splits_begin_where_the_scan_found_them() {
        let rows = SPLIT_ROWS + 10;
        let text: String = (0..rows).map(|n| format!("{{\"n\": {n}}}\n\n")).collect();
        let (_dir, source) = open_text(&text).await.unwrap();
        assert_eq!(source.manifest().files[0].splits.len(), 2);
        let (keys, batch) = read_all(&source, &[0], None).await.unwrap();
        assert!(keys.iter().zip(0..).all(|(key, n)| *key == (0, n)));
        let numbers = batch
            .column(0)
            .as_primitive::<arrow::datatypes::Int64Type>()
            .values();
        assert!(numbers.iter().zip(0..).all(|(n, expected)| *n == expected));
    }

    #[tokio::test]
    async fn broken_lines_are_named() {
        let error = open_text("{\"a\": 1}\n\n{\"a\": }\n").await.unwrap_err();
        assert!(
            error.contains("t.jsonl' is not a sound JSON file: line 3: column 7: expected value"),
            "{error}"
        );
        let error = open_text("[1, 2]\n").await.unwrap_err();
        assert!(error.contains("put one object on each line"), "{error}");
        let error = open_text("[\n{\"a\": 1}\n]\n").await.unwrap_err();
        assert!(error.contains("over several lines"), "{error}");
        let error = open_text("{\"a\": 1}\n{\"a\": {\"b\": 1}}\n")
            .await
            .unwrap_err();
        assert!(
            error.contains("one type for each column") && error.contains("line 2"),
            "{error}"
        );
        assert!(open_text("").await.is_ok());
    }

    #[tokio::test]
    async fn no_row_is_lost_to_odd_bytes() {
        for text in [
            "{\"a\": 1}\n{\"a\": 2}{\"a\": 3}\n",
            "{\"a\": 1}\n{\"a\": 2}\r{\"a\": 3}\n",
            "{\"a\": 1}\n{\"a\": 2",
            "{\"a\": 1}\n\0\0\0",
            "{\"a\": 1}\n{\"a\": \"x\ny\"}\n",
        ] {
            let error = open_text(text).await.unwrap_err();
            assert!(error.contains("line 2: column"), "{text:?}: {error}");
        }
        for (text, rows) in [("{\"a\": 1}", 1), ("{\"a\": 1}\r\n\r\n{\"a\": 2}\r\n", 2)] {
            let (_dir, source) = open_text(text).await.unwrap();
            assert_eq!(read_all(&source, &[0], None).await.unwrap().0.len(), rows);
        }
    }

    #[tokio::test]
    async fn declared_columns_leave_the_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        fs::write(&path, "{\"a\": 1, \"b\": 2}\n{\"a\": 300}\n").unwrap();
        let mut spec = spec(Format::Json, &path, &[]);
        spec.columns = Some(Arc::new(Schema::new(vec![Field::new(
            "a",
            DataType::Int16,
            true,
        )])));
        let source = FileResolver::default().open(&spec).await.unwrap();
        assert_eq!(
            read_all(&source, &[0], None).await.unwrap().1.num_columns(),
            1
        );
        spec.columns = Some(Arc::new(Schema::new(vec![Field::new(
            "a",
            DataType::Int8,
            true,
        )])));
        let source = FileResolver::default().open(&spec).await.unwrap();
        let error = read_all(&source, &[0], None).await.unwrap_err();
        assert!(error.contains("line 2: "), "{error}");
    }
}
