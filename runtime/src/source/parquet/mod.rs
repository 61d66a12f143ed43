//! `PARQUET` files: a split is a row group.
//!
//! A row group is read page by page, so that even a row group of gigabytes needs only the memory of
//! a few pages and batches.

mod footer;
mod index;
mod pages;
mod prune;
mod rows;
#[cfg(test)]
mod tests;
mod thrift;

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::physical_expr::utils::collect_columns;
use forebay_planner::source::SourceSpec;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_schema};
use parquet::basic::Type;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{
    ColumnChunkMetaData, FooterTail, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
    RowGroupMetaData,
};

use super::content::{ContentHash, ContentHasher, extend_tail, read_tail};
use super::error::SourceError;
use super::file_source::{FileRows, FileSource, SplitReader, inspect_all};
use super::input::{Input, InputFile, SharedInput};
use super::listing::{WantedFiles, list};
use super::options::SourceOptions;
use super::plain::{merged_schema, plain_batch, plain_schema};
use super::reader::{SourceReader, boxed};
use super::recent_files::RecentFiles;
use super::split_location::SplitLocation;
use super::stream::{Emit, rows_per_batch};
use super::{Scan, Split, StoredRows};
use crate::objects::ObjectStores;
use pages::Pages;
use prune::{KeptRows, Pruning};

const FORMAT: &str = "PARQUET";

/// Maximum size of a footer in bytes. A file with a larger footer is refused.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// Maximum total size in bytes of the footers that an open source keeps in memory, so that reading
/// a row group does not parse the footer again. A footer that does not fit is parsed for each read.
const FOOTER_CACHE_BYTES: usize = 32 << 20;

/// Maximum number of files whose page indexes a source keeps.
const INDEXED_FILES: usize = 16;

pub(super) static READER: SourceReader = SourceReader {
    files: WantedFiles {
        noun: "Parquet",
        extensions: &["parquet", "parq", "pq"],
        strict: false,
    },
    options: &[],
    open: |spec, stores| boxed(open(spec, stores)),
};

/// Opens Parquet files and reads their footers. The format has no options.
pub(crate) async fn open(spec: &SourceSpec, stores: &ObjectStores) -> Result<FileSource> {
    SourceOptions::new(spec, READER.options)?;
    if spec.columns.is_some() {
        return Err(SourceError::Schema(
            "PARQUET files define their columns themselves: leave out the column list".to_owned(),
        )
        .into());
    }
    let listing = list(&spec.location, &READER.files, stores).await?;
    let found = inspect_all(&listing, FORMAT, |file| Ok(inspect(&file.file)?)).await?;
    let schema = merged_schema(
        FORMAT,
        listing
            .files
            .iter()
            .zip(&found)
            .map(|(file, f)| (file.relative.as_str(), &f.schema)),
    )?;
    let mut room = FOOTER_CACHE_BYTES;
    let mut rows = Vec::with_capacity(found.len());
    let mut footers = Vec::with_capacity(found.len());
    for file in found {
        rows.push(file.rows);
        let bytes = file.footer.memory_size();
        footers.push((bytes <= room).then_some(file.footer));
        room = room.saturating_sub(bytes);
    }
    let reader = Arc::new(ParquetReader {
        schema: Arc::clone(&schema),
        footers,
        indexed: RecentFiles::new(INDEXED_FILES),
    });
    Ok(FileSource::new(spec, schema, listing, rows, reader))
}

/// The parts of a file's footer that opening the file needs.
struct Inspected {
    schema: Schema,
    rows: FileRows,
    footer: Arc<ParquetMetaData>,
}

fn inspect(file: &InputFile) -> Result<Inspected, SourceError> {
    let path = &file.name();
    let damaged = |cause: &dyn ToString| SourceError::damaged(path, FORMAT, cause.to_string());
    let (mut file, size) = file.open()?;
    let tail = tail_with_footer(&mut file, size);
    let tail = tail.map_err(|error| SourceError::unreadable(path, error))?;
    footer::check(&tail, size).map_err(|cause| damaged(&cause))?;
    let mut content = ContentHasher::new(FORMAT, "");
    content.update(&tail);
    let footer = parsed_footer(&tail, size).map_err(|e| damaged(&e))?;
    let described = footer.file_metadata();
    let stored = parquet_to_arrow_schema(described.schema_descr(), described.key_value_metadata())
        .map_err(|e| damaged(&e))?;
    let mut first_row = 0u64;
    let mut splits = Vec::with_capacity(footer.num_row_groups());
    for (index, group) in footer.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows())
            .map_err(|_| damaged(&format!("row group {index} has {} rows", group.num_rows())))?;
        let flat = |column: &&ColumnChunkMetaData| column.column_descr().max_rep_level() == 0;
        if let Some(other) = group
            .columns()
            .iter()
            .filter(flat)
            .find(|column| u64::try_from(column.num_values()) != Ok(rows))
        {
            return Err(damaged(&format!(
                "row group {index} states {rows} rows, but {} values of the column '{}'",
                other.num_values(),
                other.column_path()
            )));
        }
        let bytes = u64::try_from(group.total_byte_size()).unwrap_or(0);
        splits.push(Split {
            first_row,
            rows,
            bytes,
        });
        first_row = first_row
            .checked_add(rows)
            .filter(|&sum| i64::try_from(sum).is_ok())
            .ok_or_else(|| damaged(&"its row counts overflow"))?;
    }
    Ok(Inspected {
        schema: plain_schema(&stored),
        rows: FileRows {
            content: content.finish(),
            splits,
        },
        footer: Arc::new(footer),
    })
}

/// Reads the end of a file of `size` bytes, which includes the whole footer.
fn tail_with_footer(file: &mut Input, size: u64) -> io::Result<Bytes> {
    let tail = read_tail(file, size, 0)?;
    let end = tail
        .last_chunk()
        .and_then(|end| FooterTail::try_new(end).ok());
    // A file without a footer is refused later, when the footer is parsed.
    let footer = end.map_or(0, |end| end.metadata_length() as u64);
    let needed = footer.saturating_add(FOOTER_SIZE as u64).min(size);
    if (tail.len() as u64..MAX_FOOTER_BYTES).contains(&needed) {
        return extend_tail(file, size, needed, tail);
    }
    Ok(tail)
}

/// Parses the footer in `tail`, the end of a file of `size` bytes.
fn parsed_footer(tail: &Bytes, size: u64) -> parquet::errors::Result<ParquetMetaData> {
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Skip);
    reader.try_parse_sized(tail, size)?;
    reader.finish()
}

#[derive(Debug)]
struct ParquetReader {
    schema: SchemaRef,
    /// The footer of each file; `None` for a footer that did not fit into [`FOOTER_CACHE_BYTES`]
    /// together with the footers before.
    footers: Vec<Option<Arc<ParquetMetaData>>>,
    /// Footers with page indexes.
    indexed: RecentFiles<ParquetMetaData>,
}

impl ParquetReader {
    /// Returns the footer of a file, with the page index of the file if `prune` is true and that
    /// index is sound.
    fn footer(
        &self,
        place: &SplitLocation,
        file: &SharedInput,
        prune: bool,
    ) -> Result<Arc<ParquetMetaData>> {
        if !prune {
            return self.plain_footer(place, file);
        }
        self.indexed.get_or_read(place.file, || {
            let footer = self.plain_footer(place, file)?;
            let indexed = index::with_index(file, place.size, &footer);
            let indexed = indexed.map_err(|error| SourceError::unreadable(&place.path, error))?;
            // A file whose page index is not sound can still be read without its index.
            Ok(indexed.map_or(footer, Arc::new))
        })
    }

    /// Returns the footer of a file, without the page index of the file.
    fn plain_footer(
        &self,
        place: &SplitLocation,
        file: &SharedInput,
    ) -> Result<Arc<ParquetMetaData>> {
        if let Some(Some(footer)) = self.footers.get(place.file) {
            return Ok(Arc::clone(footer));
        }
        let tail = file.with(|file| tail_with_footer(file, place.size));
        let tail = tail.map_err(|error| SourceError::unreadable(&place.path, error))?;
        let footer = parsed_footer(&tail, place.size);
        let damaged = |e| SourceError::damaged(&place.path, FORMAT, e);
        Ok(Arc::new(footer.map_err(damaged)?))
    }
}

impl SplitReader for ParquetReader {
    fn content(&self, file: &InputFile) -> Result<ContentHash, SourceError> {
        Ok(inspect(file)?.rows.content)
    }

    fn read(&self, place: &SplitLocation, scan: &Scan, emit: &Emit) -> Result<()> {
        let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
        let file = SharedInput::new(place.open()?, place.size);
        let mut footer = self.footer(place, &file, scan.prune.is_some())?;
        let group = listed_group(place, &footer).map_err(damaged)?;
        let pruning = scan
            .prune
            .as_ref()
            .and_then(|predicate| Pruning::by_statistics(&footer, place, &self.schema, predicate));
        if pruning.as_ref().is_some_and(Pruning::is_excluded) {
            return Ok(());
        }
        let columns = scanned_columns(group, scan);
        let chunks: Vec<Range<u64>> = { columns.iter() }
            .filter_map(|&leaf| pages::byte_range(group.column(leaf), place.size))
            .collect();
        file.fetch(&chunks)
            .map_err(|error| SourceError::unreadable(&place.path, error))?;
        let checked = check_pages(place, &file, &footer, group, &columns).map_err(damaged)?;
        if !checked.is_index_sound {
            footer = self.footer(place, &file, false)?;
        }
        let group = footer.row_group(place.split);
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(&footer), ArrowReaderOptions::new())
            .map_err(|e| damaged(e.to_string()))?;
        let batch_rows = rows_per_batch(place.rows.rows, projected_bytes(group, &scan.projection));
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_row_groups(vec![place.split])
            .with_projection(ProjectionMask::roots(
                footer.file_metadata().schema_descr(),
                scan.projection.iter().copied(),
            ))
            .with_batch_size(batch_rows.min(checked.batch_rows));
        // Row numbers are computed from the selection. The reader's virtual column of row numbers
        // would give the same numbers, but cost decoding.
        let first_row = place.rows.first_row;
        let mut selected = None;
        if let Some(pruning) = pruning {
            match pruning.kept_rows(&builder, place, &self.schema) {
                KeptRows::None => return Ok(()),
                KeptRows::All => {}
                KeptRows::Some(selection) => {
                    selected = Some(ranges(&selection, first_row));
                    builder = builder.with_row_selection(selection);
                }
            }
        }
        let kept = selected
            .unwrap_or_else(|| std::iter::once(first_row..first_row + place.rows.rows).collect());
        let expected: u64 = kept.iter().map(|range| range.end - range.start).sum();
        let mut numbers = kept.into_iter().flatten();
        let schema = Arc::new(self.schema.project(&scan.projection)?);
        let mut seen = 0u64;
        for batch in builder.build().map_err(|e| damaged(e.to_string()))? {
            let batch = batch.map_err(|e| {
                damaged(format!(
                    "row group {}, after row {}: {e}",
                    place.split,
                    place.rows.first_row + seen
                ))
            })?;
            seen += batch.num_rows() as u64;
            let numbers = numbers.by_ref().take(batch.num_rows()).collect::<Vec<_>>();
            if numbers.len() != batch.num_rows() {
                return Err(
                    damaged("it holds more rows than its footer promises".to_owned()).into(),
                );
            }
            let batch = plain_batch(&schema, batch.columns(), batch.num_rows())
                .map_err(|e| damaged(e.to_string()))?;
            if !emit.send(StoredRows { batch, numbers }) {
                return Ok(());
            }
        }
        if seen != expected {
            let cause = format!(
                "row group {} holds {seen} of the {expected} rows that the footer promises",
                place.split
            );
            return Err(damaged(cause).into());
        }
        Ok(())
    }
}

/// Returns the row group at `place`. Fails if its number of rows has changed, because the file may
/// have been replaced by another file of the same size.
fn listed_group<'a>(
    place: &SplitLocation,
    footer: &'a ParquetMetaData,
) -> std::result::Result<&'a RowGroupMetaData, String> {
    let group = footer.row_groups().get(place.split);
    group
        .filter(|group| u64::try_from(group.num_rows()) == Ok(place.rows.rows))
        .ok_or_else(|| {
            "its row groups are not those that it had when the source was opened".to_owned()
        })
}

/// The result of checking the Parquet pages that a scan reads.
struct CheckedPages {
    /// False when the page index does not describe the pages of the file. The scan then does not
    /// use the index.
    is_index_sound: bool,
    /// Maximum number of rows in a batch of the scan.
    batch_rows: usize,
}

/// Returns the leaf columns that a scan reads, or uses for pruning.
fn scanned_columns(group: &RowGroupMetaData, scan: &Scan) -> Vec<usize> {
    let mut roots: HashSet<usize> = scan.projection.iter().copied().collect();
    if let Some(predicate) = &scan.prune {
        roots.extend(
            collect_columns(predicate)
                .iter()
                .map(|column| column.index()),
        );
    }
    let is_scanned =
        |leaf: &usize| roots.contains(&group.schema_descr().get_column_root_idx(*leaf));
    (0..group.num_columns()).filter(is_scanned).collect()
}

/// Checks the pages of the leaf columns in `columns`.
fn check_pages(
    place: &SplitLocation,
    file: &SharedInput,
    footer: &ParquetMetaData,
    group: &RowGroupMetaData,
    columns: &[usize],
) -> Result<CheckedPages, String> {
    let index = footer
        .offset_index()
        .and_then(|index| index.get(place.split));
    let mut checked = CheckedPages {
        is_index_sound: true,
        batch_rows: usize::MAX,
    };
    for &leaf in columns {
        let column = group.column(leaf);
        let pages = Pages::check(file, place.size, column, place.rows.rows).map_err(|cause| {
            let name = column.column_path();
            format!("row group {}, column '{name}': {cause}", place.split)
        })?;
        let locations = index.and_then(|index| index.get(leaf));
        checked.is_index_sound &=
            locations.is_none_or(|found| pages.fit(found.page_locations(), column));
        checked.batch_rows = checked.batch_rows.min(pages.batch_rows);
    }
    Ok(checked)
}

/// Returns the ranges of row numbers in the file that `selection` selects from a row group. `first`
/// is the row number of the row group's first row.
fn ranges(selection: &RowSelection, first: u64) -> Vec<Range<u64>> {
    let mut next = first;
    let mut kept = Vec::new();
    for step in selection.iter() {
        let start = next;
        next += step.row_count as u64;
        if !step.skip {
            kept.push(start..next);
        }
    }
    kept
}

/// Estimates the size in bytes of the projected columns of a row group once decoded, from the
/// metadata in the footer.
fn projected_bytes(group: &RowGroupMetaData, projection: &[usize]) -> u64 {
    let schema = group.schema_descr();
    (0..group.num_columns())
        .filter(|&leaf| projection.contains(&schema.get_column_root_idx(leaf)))
        .map(|leaf| decoded_bytes(group.column(leaf)))
        .fold(0, u64::saturating_add)
}

fn decoded_bytes(column: &ColumnChunkMetaData) -> u64 {
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    // With dictionary encoding, the stored bytes can be far fewer than the decoded bytes.
    let value = match column.column_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::FIXED_LEN_BYTE_ARRAY => {
            u64::try_from(column.column_descr().type_length()).unwrap_or(0)
        }
    };
    let fixed = count(column.num_values()).saturating_mul(value);
    let variable = column.unencoded_byte_array_data_bytes().map_or(0, count);
    count(column.uncompressed_size()).max(fixed.saturating_add(variable))
}
