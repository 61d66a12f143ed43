//! `CSV`: a split is a run of rows.
//!
//! One scan when the source is opened checks that every record has as many fields as the first,
//! counts the rows, and notes where runs of [`SPLIT_ROWS`](super::runs::SPLIT_ROWS) begin.

mod infer;
mod quotes;
mod records;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use forebay_planner::source::SourceSpec;

use super::content::{ContentHash, ContentHasher, HashedRead};
use super::error::SourceError;
use super::listing::{Wanted, list};
use super::options::Options;
use super::plain::merged_schema;
use super::runs::{Runs, Start};
use super::staged::{FileRows, Place, SplitReader, StagedSource, inspect_all, open as open_file};
use super::stream::{BATCH_BYTES, BATCH_ROWS, Emit};
use super::{Scan, StoredRows};
use infer::Guess;
use records::{Dialect, Record, Records};

const FORMAT: &str = "CSV";

/// Rows of each file that the types of columns are guessed from, unless the option `infer_rows` says
/// otherwise. A later value of another type is an error.
const INFER_ROWS: usize = 1000;

const READ_BYTES: usize = 256 << 10;

pub(super) const CSV: Wanted = Wanted {
    noun: "CSV",
    extensions: &["csv"],
    strict: false,
};

/// Names of the options.
const OPTIONS: &[&str] = &[
    "delimiter",
    "header",
    "null",
    "quote",
    "escape",
    "comment",
    "infer_rows",
];

/// How the files are to be understood.
#[derive(Debug, Clone)]
struct Shape {
    dialect: Dialect,
    header: bool,
    /// The text that means null. Empty text is null in columns that are not text, too.
    null: String,
    infer_rows: usize,
    declared: Option<SchemaRef>,
}

impl Shape {
    fn new(spec: &SourceSpec) -> Result<Self, SourceError> {
        let options = Options::new(spec, OPTIONS)?;
        let quote = options.byte("quote")?.unwrap_or(b'"');
        let dialect = Dialect {
            delimiter: options.byte("delimiter")?.unwrap_or(b','),
            quote,
            // A quote that escapes a quote is a doubled quote.
            escape: options.byte("escape")?.filter(|&escape| escape != quote),
            comment: options.byte("comment")?,
        };
        if dialect.delimiter == dialect.quote {
            return Err(options.wrong("delimiter", "another character than the quote"));
        }
        if let Some(field) = spec
            .columns
            .iter()
            .flat_map(|columns| columns.fields())
            .find(|f| !can_cast_types(&DataType::Utf8, f.data_type()))
        {
            return Err(SourceError::Schema(format!(
                "a CSV file cannot hold the column '{}' of type {}",
                field.name(),
                field.data_type()
            )));
        }
        Ok(Self {
            dialect,
            header: options.boolean("header", true)?,
            null: options.text("null").unwrap_or_default().to_owned(),
            infer_rows: options.count("infer_rows", INFER_ROWS)?,
            declared: spec.columns.clone(),
        })
    }

    /// Begins the identity of a file: its rows depend on the dialect, too.
    fn hasher(&self) -> ContentHasher {
        let Dialect {
            delimiter,
            quote,
            escape,
            comment,
        } = self.dialect;
        let (header, null) = (self.header, &self.null);
        let options = format!("{delimiter} {quote} {escape:?} {comment:?} {header} {null}");
        ContentHasher::new(FORMAT, &options)
    }

    fn is_null(&self, value: &str, data_type: &DataType) -> bool {
        value == self.null || (value.is_empty() && !is_text(data_type))
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// Opens CSV files: scans them once.
pub(crate) async fn open(spec: &SourceSpec) -> Result<StagedSource> {
    let shape = Shape::new(spec)?;
    let listing = list(&spec.location, &CSV).await?;
    let scanned = {
        let shape = shape.clone();
        inspect_all(&listing, FORMAT, move |file| {
            Ok(scan(&file.absolute, &shape)?)
        })
        .await?
    };
    let schema = match &shape.declared {
        Some(declared) => Arc::clone(declared),
        None => {
            // The guess joins all files: integers in one, floats in another are floats.
            let mut guesses = scanned
                .first()
                .map(|s| s.guesses.clone())
                .unwrap_or_default();
            for file in &scanned {
                for (guess, other) in guesses.iter_mut().zip(&file.guesses) {
                    *guess = guess.join(*other);
                }
            }
            let schemas: Vec<Schema> = scanned
                .iter()
                .map(|file| {
                    let types = guesses
                        .iter()
                        .copied()
                        .chain(std::iter::repeat(Guess::Nothing));
                    Schema::new(
                        file.names
                            .iter()
                            .zip(types)
                            .map(|(name, guess)| Field::new(name, guess.data_type(), true))
                            .collect::<Vec<_>>(),
                    )
                })
                .collect();
            let names = listing.files.iter().map(|file| file.relative.as_str());
            merged_schema(FORMAT, names.zip(&schemas))?
        }
    };
    let (rows, starts) = scanned
        .into_iter()
        .map(|file| {
            let (content, splits) = (file.content, file.runs.splits);
            (FileRows { content, splits }, file.runs.starts)
        })
        .unzip();
    let reader = Arc::new(Reader {
        shape,
        schema: Arc::clone(&schema),
        starts,
    });
    Ok(StagedSource::new(spec, schema, listing, rows, reader))
}

/// What the scan of a file found.
#[derive(Debug)]
struct Scanned {
    names: Vec<String>,
    guesses: Vec<Guess>,
    runs: Runs,
    content: ContentHash,
}

fn scan(path: &Path, shape: &Shape) -> Result<Scanned, SourceError> {
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    let (file, _) = open_file(path)?;
    let input: HashedRead<File> = HashedRead::new(file, shape.hasher());
    let input = BufReader::with_capacity(READ_BYTES, input);
    let mut records = Records::new(input, shape.dialect, 1);
    records.skip_byte_order_mark().map_err(damaged)?;
    let mut names = None;
    if shape.header {
        let Some(header) = records.next().map_err(damaged)? else {
            return Err(damaged(
                "it is empty where a line with the names of the columns was expected (or set the option header to false)"
                    .to_owned(),
            ));
        };
        names = Some(header.fields().enumerate().map(named).collect::<Vec<_>>());
    }
    let mut expected = names.as_ref().map(Vec::len);
    let mut guesses = vec![Guess::Nothing; expected.unwrap_or(0)];
    let mut runs = Runs::default();
    loop {
        let start = Start {
            offset: records.consumed(),
            line: records.line(),
        };
        let row = runs.rows();
        let in_row = |cause: String| damaged(format!("row {row}: {cause}"));
        let Some(record) = records.next().map_err(in_row)? else {
            break;
        };
        let columns = *expected.get_or_insert(record.len());
        if record.len() != columns {
            return Err(ragged(path, &record, columns));
        }
        if (runs.rows() as usize) < shape.infer_rows {
            guesses.resize(columns, Guess::Nothing);
            for (guess, value) in guesses.iter_mut().zip(record.fields()) {
                if !value.is_empty() && value != shape.null {
                    *guess = guess.join(Guess::of(value));
                }
            }
        }
        runs.push(start, records.consumed());
    }
    let names = match (names, &shape.declared) {
        (None, Some(declared)) if expected.is_none_or(|n| n == declared.fields().len()) => declared
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect(),
        (names, _) => names.unwrap_or_else(|| {
            vec![String::new(); expected.unwrap_or(0)]
                .iter()
                .map(String::as_str)
                .enumerate()
                .map(named)
                .collect()
        }),
    };
    if let Some(declared) = &shape.declared {
        let wanted: Vec<&str> = declared
            .fields()
            .iter()
            .map(|f| f.name().as_str())
            .collect();
        if names != wanted {
            return Err(SourceError::Schema(format!(
                "'{}' has the columns {}, where {} were declared",
                path.display(),
                names.join(", "),
                wanted.join(", ")
            )));
        }
    }
    Ok(Scanned {
        names,
        guesses,
        runs,
        content: records.into_input().get_ref().hash(),
    })
}

/// The name of a column; one without is numbered from 1.
fn named((index, name): (usize, &str)) -> String {
    if name.is_empty() {
        format!("column_{}", index + 1)
    } else {
        name.to_owned()
    }
}

fn ragged(path: &Path, record: &Record<'_>, expected: usize) -> SourceError {
    SourceError::damaged(
        path,
        FORMAT,
        format!(
            "line {} has {} fields where {expected} were expected",
            record.line,
            record.len()
        ),
    )
}

#[derive(Debug)]
struct Reader {
    shape: Shape,
    schema: SchemaRef,
    /// Per file and split.
    starts: Vec<Vec<Start>>,
}

impl SplitReader for Reader {
    fn content(&self, path: &Path) -> Result<ContentHash, SourceError> {
        self.shape.hasher().whole_file(path)
    }

    fn read(&self, place: &Place, scan: &Scan, emit: &Emit) -> Result<()> {
        let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
        let start = self.starts[place.file][place.split];
        let mut file = place.open()?;
        file.seek(SeekFrom::Start(start.offset))
            .map_err(|error| SourceError::unreadable(&place.path, error))?;
        let input = BufReader::with_capacity(READ_BYTES, file);
        let mut records = Records::new(input, self.shape.dialect, start.line);
        let schema = Arc::new(self.schema.project(&scan.projection)?);
        let mut columns = Columns::new(&self.shape, &schema, &place.path);
        let mut bytes = 0u64;
        let mut first = place.rows.first_row;
        for row in place.rows.first_row..place.rows.first_row + place.rows.rows {
            let Some(record) = records.next().map_err(damaged)? else {
                return Err(damaged(format!(
                    "it ends after {row} rows; it had more when it was opened"
                ))
                .into());
            };
            if record.len() != self.schema.fields().len() {
                return Err(ragged(&place.path, &record, self.schema.fields().len()).into());
            }
            columns.push(&record, &scan.projection);
            bytes += record.bytes() as u64;
            if bytes >= BATCH_BYTES || columns.lines.len() >= BATCH_ROWS {
                let numbers = (first..=row).collect();
                first = row + 1;
                bytes = 0;
                if !emit.send(StoredRows {
                    batch: columns.finish()?,
                    numbers,
                }) {
                    return Ok(());
                }
            }
        }
        let numbers = (first..place.rows.first_row + place.rows.rows).collect();
        // Nobody listening is no error, and there is nothing left to stop.
        let _ = emit.send(StoredRows {
            batch: columns.finish()?,
            numbers,
        });
        Ok(())
    }
}

/// Columns of text on their way to their types.
struct Columns<'a> {
    shape: &'a Shape,
    schema: &'a SchemaRef,
    path: &'a Path,
    text: Vec<StringBuilder>,
    /// Line of each row.
    lines: Vec<u64>,
}

impl<'a> Columns<'a> {
    fn new(shape: &'a Shape, schema: &'a SchemaRef, path: &'a Path) -> Self {
        let text = schema
            .fields()
            .iter()
            .map(|_| StringBuilder::new())
            .collect();
        Self {
            shape,
            schema,
            path,
            text,
            lines: Vec::new(),
        }
    }

    fn push(&mut self, record: &Record<'_>, projection: &[usize]) {
        let fields = self.schema.fields().iter();
        for ((builder, field), &column) in self.text.iter_mut().zip(fields).zip(projection) {
            let value = record.field(column);
            let null = self.shape.is_null(value, field.data_type());
            builder.append_option((!null).then_some(value));
        }
        self.lines.push(record.line);
    }

    fn finish(&mut self) -> Result<RecordBatch> {
        let lines = std::mem::take(&mut self.lines);
        let columns = self
            .text
            .iter_mut()
            .zip(self.schema.fields())
            .map(|(builder, field)| typed(&builder.finish(), field, &lines, self.path))
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(self.schema),
            columns,
            &options,
        )?)
    }
}

/// Text as values of the column's type.
fn typed(text: &StringArray, field: &Field, lines: &[u64], path: &Path) -> Result<ArrayRef> {
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    if !field.is_nullable()
        && let Some(row) = (0..text.len()).find(|&row| text.is_null(row))
    {
        let cause = format!(
            "line {}, column '{}': null in a column declared NOT NULL",
            lines[row],
            field.name()
        );
        return Err(damaged(cause).into());
    }
    if field.data_type() == &DataType::Utf8 {
        return Ok(Arc::new(text.clone()));
    }
    let lenient = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let values = cast_with_options(text, field.data_type(), &lenient)?;
    if values.null_count() > text.null_count()
        && let Some(row) = (0..text.len()).find(|&row| values.is_null(row) && text.is_valid(row))
    {
        let value: String = text.value(row).chars().take(60).collect();
        return Err(damaged(format!(
            "line {}, column '{}': '{value}' is not a value of type {} (declare the column's type, or raise the option infer_rows)",
            lines[row],
            field.name(),
            field.data_type()
        ))
        .into());
    }
    Ok(values)
}
