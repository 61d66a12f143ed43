//! `CSV`: a split is a range of consecutive rows.
//!
//! When the source is opened, one scan of each file checks that every record has as many fields as
//! the first record, counts the rows, and records the offset of each split of
//! [`SPLIT_ROWS`](super::runs::SPLIT_ROWS) rows.

mod columns;
mod dialect;
mod infer;
mod quotes;
mod records;
mod shape;
#[cfg(test)]
mod tests;

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::Result;
use forebay_planner::source::SourceSpec;

use super::content::{ContentHash, HashedRead};
use super::error::SourceError;
use super::file_source::{FileRows, FileSource, SplitReader, inspect_all};
use super::input::InputFile;
use super::listing::{WantedFiles, list};
use super::plain::merged_schema;
use super::reader::{SourceReader, boxed};
use super::runs::{Runs, Start};
use super::split_location::SplitLocation;
use super::stream::{BATCH_BYTES, BATCH_ROWS, Emit};
use super::{Scan, StoredRows};
use crate::objects::ObjectStores;
use columns::TextColumns;
use infer::Guess;
use records::{Record, Records};
use shape::{CsvShape, FORMAT, OPTIONS};

const READ_BYTES: usize = 256 << 10;

pub(super) static READER: SourceReader = SourceReader {
    files: WantedFiles {
        noun: "CSV",
        extensions: &["csv"],
        strict: false,
    },
    options: OPTIONS,
    open: |spec, stores| boxed(open(spec, stores)),
};

/// Opens CSV files, and scans each file once.
pub(crate) async fn open(spec: &SourceSpec, stores: &ObjectStores) -> Result<FileSource> {
    let shape = CsvShape::new(spec)?;
    let listing = list(&spec.location, &READER.files, stores).await?;
    let scanned = {
        let shape = shape.clone();
        inspect_all(&listing, FORMAT, move |file| Ok(scan(&file.file, &shape)?)).await?
    };
    let schema = match &shape.declared {
        Some(declared) => Arc::clone(declared),
        None => {
            // The guesses of all files are joined: a column that holds integers in one file and
            // floats in another is a column of floats.
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
    let reader = Arc::new(CsvReader {
        shape,
        schema: Arc::clone(&schema),
        starts,
    });
    Ok(FileSource::new(spec, schema, listing, rows, reader))
}

/// The result of scanning a CSV file.
#[derive(Debug)]
struct ScannedCsv {
    names: Vec<String>,
    guesses: Vec<Guess>,
    runs: Runs,
    content: ContentHash,
}

fn scan(file: &InputFile, shape: &CsvShape) -> Result<ScannedCsv, SourceError> {
    let path = &file.name();
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    let (mut input, size) = file.open()?;
    input
        .read_only(0..size)
        .map_err(|error| SourceError::unreadable(path, error))?;
    let input = HashedRead::new(input, shape.hasher());
    let input = BufReader::with_capacity(READ_BYTES, input);
    let mut records = Records::new(input, shape.dialect, 1);
    records.skip_byte_order_mark().map_err(damaged)?;
    let mut names = None;
    if shape.header {
        let Some(header) = records.next().map_err(damaged)? else {
            return Err(damaged(
                "it is empty, but a line with the names of the columns was expected; add that line, or set the option header to false"
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
    let names = column_names(path, shape, names, expected)?;
    Ok(ScannedCsv {
        names,
        guesses,
        runs,
        content: records.into_input().get_ref().hash(),
    })
}

/// Returns the names of the columns of a file: those of the header, the declared ones, or numbers.
/// `columns` is the number of columns; `None` if the file has no record.
fn column_names(
    path: &Path,
    shape: &CsvShape,
    header: Option<Vec<String>>,
    columns: Option<usize>,
) -> Result<Vec<String>, SourceError> {
    let numbered = || (0..columns.unwrap_or(0)).map(|index| named((index, "")));
    let Some(declared) = &shape.declared else {
        return Ok(header.unwrap_or_else(|| numbered().collect()));
    };
    let wanted: Vec<String> = { declared.fields().iter() }
        .map(|field| field.name().clone())
        .collect();
    let names = match header {
        Some(names) => names,
        None if columns.is_none_or(|count| count == wanted.len()) => return Ok(wanted),
        None => numbered().collect(),
    };
    if names == wanted {
        return Ok(names);
    }
    Err(SourceError::Schema(format!(
        "'{}' has the columns {}, where {} were declared",
        path.display(),
        names.join(", "),
        wanted.join(", ")
    )))
}

/// Returns the name of the column `index`, or `column_N` if `name` is empty. `N` counts from 1.
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
struct CsvReader {
    shape: CsvShape,
    schema: SchemaRef,
    /// For each file, the starts of its splits.
    starts: Vec<Vec<Start>>,
}

impl SplitReader for CsvReader {
    fn content(&self, file: &InputFile) -> Result<ContentHash, SourceError> {
        self.shape.hasher().whole_file(file)
    }

    fn read(&self, place: &SplitLocation, scan: &Scan, emit: &Emit) -> Result<()> {
        let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
        let start = self.starts[place.file][place.split];
        let mut file = place.open()?;
        file.read_only(start.offset..start.offset + place.rows.bytes)
            .map_err(|error| SourceError::unreadable(&place.path, error))?;
        let input = BufReader::with_capacity(READ_BYTES, file);
        let mut records = Records::new(input, self.shape.dialect, start.line);
        let schema = Arc::new(self.schema.project(&scan.projection)?);
        let mut columns = TextColumns::new(&self.shape, &schema, &place.path);
        let mut bytes = 0u64;
        let mut first = place.rows.first_row;
        for row in place.rows.first_row..place.rows.first_row + place.rows.rows {
            let Some(record) = records.next().map_err(damaged)? else {
                return Err(damaged(format!(
                    "it ends after {row} rows, but had more when the source was opened"
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
        // The result is ignored: if the consumer hung up, the last batch is not needed.
        let _ = emit.send(StoredRows {
            batch: columns.finish()?,
            numbers,
        });
        Ok(())
    }
}
