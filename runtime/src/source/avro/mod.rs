//! `AVRO` object container files: a split is a range of consecutive blocks.
//!
//! Row counts come from the headers of the blocks, without decoding the rows. Before a block is
//! decoded, a walk over its bytes checks that the block holds as many rows as its header states.

mod blocks;
mod codec;
mod container;
mod shape;
#[cfg(test)]
mod tests;

use std::io::{BufReader, Cursor};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_avro::reader::ReaderBuilder;
use datafusion::common::Result;
use forebay_planner::source::SourceSpec;

use super::content::{ContentHash, ContentHasher};
use super::error::SourceError;
use super::file_source::{FileRows, FileSource, SplitReader, inspect_all};
use super::input::InputFile;
use super::listing::{WantedFiles, list};
use super::options::SourceOptions;
use super::plain::{merged_schema, plain_batch, plain_schema};
use super::reader::{SourceReader, boxed};
use super::runs::SPLIT_ROWS;
use super::split_location::SplitLocation;
use super::stream::{Emit, rows_per_batch};
use super::{Scan, Split, StoredRows};
use crate::objects::ObjectStores;
use blocks::Blocks;
use container::{ContainerHeader, RangeReader};
use shape::RowShape;

const FORMAT: &str = "AVRO";

/// Estimated bytes of decoded rows per stored byte. Decoded rows are larger because blocks are
/// compressed, and integers are stored in few bytes.
const EXPANSION: u64 = 4;

const READ_BYTES: usize = 64 << 10;

pub(super) static READER: SourceReader = SourceReader {
    files: WantedFiles {
        noun: "Avro",
        extensions: &["avro"],
        strict: false,
    },
    options: &[],
    open: |spec, stores| boxed(open(spec, stores)),
};

/// Opens Avro files, and reads the header of each block. The format has no options.
pub(crate) async fn open(spec: &SourceSpec, stores: &ObjectStores) -> Result<FileSource> {
    SourceOptions::new(spec, READER.options)?;
    if spec.columns.is_some() {
        return Err(SourceError::Schema(
            "AVRO files define their columns themselves: leave out the column list".to_owned(),
        )
        .into());
    }
    let listing = list(&spec.location, &READER.files, stores).await?;
    let scanned = inspect_all(&listing, FORMAT, |file| Ok(scan(&file.file)?)).await?;
    let schema = merged_schema(
        FORMAT,
        listing
            .files
            .iter()
            .zip(&scanned)
            .map(|(file, s)| (file.relative.as_str(), &s.schema)),
    )?;
    let (rows, files) = scanned
        .into_iter()
        .map(|file| (file.rows, file.container))
        .unzip();
    let reader = Arc::new(AvroReader {
        schema: Arc::clone(&schema),
        files,
    });
    Ok(FileSource::new(spec, schema, listing, rows, reader))
}

/// The header of a file, and the offsets of its splits.
#[derive(Debug)]
struct Container {
    header: ContainerHeader,
    shape: RowShape,
    /// Offset in bytes of the first block of each split.
    starts: Vec<u64>,
}

struct ScannedAvro {
    schema: Schema,
    rows: FileRows,
    container: Container,
}

fn scan(file: &InputFile) -> Result<ScannedAvro, SourceError> {
    let path = &file.name();
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    let (file, size) = file.open()?;
    let mut bytes = RangeReader::new(BufReader::with_capacity(READ_BYTES, file), 0, size);
    let header = bytes.header().map_err(damaged)?;
    let shape = RowShape::parse(&header.schema).map_err(damaged)?;
    let stored = ReaderBuilder::new()
        .build(Cursor::new(header.uncompressed()))
        .map_err(|e| damaged(format!("its schema cannot be read: {e}")))?
        .schema();

    // The hash covers the schema and the sync marker in the header, and the row count and the
    // length of each block.
    let mut content = ContentHasher::new(FORMAT, "");
    content.update(&header.uncompressed());
    let mut splits: Vec<Split> = Vec::new();
    let mut starts = Vec::new();
    let mut rows = 0u64;
    while bytes.at() < size {
        let start = bytes.at();
        let count = bytes
            .skip_block(&header)
            .map_err(|e| damaged(format!("block at byte {start}: {e}")))?;
        content.update(&count.to_le_bytes());
        content.update(&(bytes.at() - start).to_le_bytes());
        let full = splits.last().is_none_or(|split| split.rows >= SPLIT_ROWS);
        if full && count > 0 {
            starts.push(start);
            splits.push(Split {
                first_row: rows,
                rows: 0,
                bytes: 0,
            });
        }
        rows = rows
            .checked_add(count)
            .ok_or_else(|| damaged("its row counts overflow".to_owned()))?;
        if let Some((split, first)) = splits.last_mut().zip(starts.last()) {
            split.rows += count;
            split.bytes = bytes.at() - first;
        }
    }
    Ok(ScannedAvro {
        schema: plain_schema(&stored),
        rows: FileRows {
            content: content.finish(),
            splits,
        },
        container: Container {
            header,
            shape,
            starts,
        },
    })
}

#[derive(Debug)]
struct AvroReader {
    schema: SchemaRef,
    /// The header and the split offsets of each file.
    files: Vec<Container>,
}

impl SplitReader for AvroReader {
    fn content(&self, file: &InputFile) -> Result<ContentHash, SourceError> {
        Ok(scan(file)?.rows.content)
    }

    fn read(&self, place: &SplitLocation, scan: &Scan, emit: &Emit) -> Result<()> {
        let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
        let container = &self.files[place.file];
        let start = container.starts[place.split];
        let mut file = place.open()?;
        file.read_only(start..start + place.rows.bytes)
            .map_err(|error| SourceError::unreadable(&place.path, error))?;
        let stored = BufReader::with_capacity(READ_BYTES, file);
        let stored = RangeReader::new(stored, start, start + place.rows.bytes);
        let input = Blocks::new(stored, &container.header, &container.shape);
        let decoded = place.rows.bytes.saturating_mul(EXPANSION);
        let reader = ReaderBuilder::new()
            .with_batch_size(rows_per_batch(place.rows.rows, decoded))
            .build(input)
            .map_err(|e| damaged(e.to_string()))?;
        let schema = Arc::new(self.schema.project(&scan.projection)?);
        let mut next = place.rows.first_row;
        let end = place.rows.first_row + place.rows.rows;
        for batch in reader {
            let batch = batch.map_err(|e| damaged(format!("after row {next}: {e}")))?;
            let rows = batch.num_rows();
            let projected = batch.project(&scan.projection)?;
            let batch = plain_batch(&schema, projected.columns(), rows)
                .map_err(|e| damaged(e.to_string()))?;
            let numbers = (next..next + rows as u64).collect();
            next += rows as u64;
            if next > end {
                break;
            }
            if !emit.send(StoredRows { batch, numbers }) {
                return Ok(());
            }
        }
        if next == end {
            return Ok(());
        }
        Err(damaged(format!(
            "the file is damaged: its block headers count rows {}..{end}, but its blocks contain rows {}..{next}",
            place.rows.first_row, place.rows.first_row
        ))
        .into())
    }
}
