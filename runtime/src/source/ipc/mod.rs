//! `ARROW`: files of the Arrow IPC file format (Feather 2); a split is a record batch.
//!
//! Rows are not read by reference: a shuffled order would read each record batch again for every
//! few rows. Instead a record batch, like a Parquet row group, is read once for each window to
//! which its rows belong.

mod check;
mod file;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::Result;
use forebay_planner::source::SourceSpec;

use super::content::ContentHash;
use super::error::SourceError;
use super::file_source::{FileRows, FileSource, SplitReader, inspect_all};
use super::input::InputFile;
use super::listing::{WantedFiles, list};
use super::options::SourceOptions;
use super::plain::{merged_schema, plain_batch, plain_schema};
use super::reader::{SourceReader, boxed};
use super::recent_files::RecentFiles;
use super::split_location::SplitLocation;
use super::stream::{Emit, rows_per_batch};
use super::{Scan, Split, StoredRows};
use crate::objects::ObjectStores;
use file::{Dictionaries, FORMAT, FileLayout};

/// Maximum number of files whose dictionaries a source keeps.
const DICTIONARY_FILES: usize = 4;

pub(super) static READER: SourceReader = SourceReader {
    files: WantedFiles {
        noun: "Arrow IPC",
        extensions: &["arrow", "feather", "ipc"],
        strict: false,
    },
    options: &[],
    open: |spec, stores| boxed(open(spec, stores)),
};

/// Opens Arrow IPC files, and reads the footer of each file and the header of each record batch.
/// The format has no options.
pub(crate) async fn open(spec: &SourceSpec, stores: &ObjectStores) -> Result<FileSource> {
    SourceOptions::new(spec, READER.options)?;
    if spec.columns.is_some() {
        return Err(SourceError::Schema(
            "ARROW files define their columns themselves: leave out the column list".to_owned(),
        )
        .into());
    }
    let listing = list(&spec.location, &READER.files, stores).await?;
    let found = inspect_all(&listing, FORMAT, |listed| Ok(file::inspect(&listed.file)?)).await?;
    let mut files = Vec::with_capacity(found.len());
    let mut layouts = Vec::with_capacity(found.len());
    for ((layout, rows), listed) in found.into_iter().zip(&listing.files) {
        let splits = splits_of(&layout, &rows).ok_or_else(|| {
            SourceError::damaged(&listed.file.name(), FORMAT, "its row counts overflow")
        })?;
        let content = layout.content;
        files.push(FileRows { content, splits });
        layouts.push(layout);
    }
    let plain: Vec<Schema> = layouts
        .iter()
        .map(|layout| plain_schema(&layout.schema))
        .collect();
    let names = listing.files.iter().map(|file| file.relative.as_str());
    let schema = merged_schema(FORMAT, names.zip(&plain))?;
    let reader = Arc::new(IpcReader {
        schema: Arc::clone(&schema),
        layouts,
        dictionaries: RecentFiles::new(DICTIONARY_FILES),
    });
    Ok(FileSource::new(spec, schema, listing, files, reader))
}

fn splits_of(layout: &FileLayout, rows: &[u64]) -> Option<Vec<Split>> {
    let mut first_row = 0u64;
    layout
        .blocks
        .iter()
        .zip(rows)
        .map(|(block, &rows)| {
            let split = Split {
                first_row,
                rows,
                bytes: file::block_bytes(block),
            };
            first_row = first_row.checked_add(rows)?;
            Some(split)
        })
        .collect()
}

#[derive(Debug)]
struct IpcReader {
    schema: SchemaRef,
    /// The layout of each file.
    layouts: Vec<FileLayout>,
    dictionaries: RecentFiles<Dictionaries>,
}

impl IpcReader {
    /// Reads the columns `projection` of the record batch at `place`, in their stored types.
    fn batch(&self, place: &SplitLocation, projection: &[usize]) -> Result<RecordBatch> {
        let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
        let failed = |e: ArrowError| damaged(format!("record batch {}: {e}", place.split));
        let mut opened = place.open()?;
        let layout = &self.layouts[place.file];
        let dictionaries = self.dictionaries.get_or_read(place.file, || {
            file::dictionaries(layout, &mut opened).map(Arc::new)
        });
        let dictionaries = dictionaries.map_err(failed)?;
        let block = &layout.blocks[place.split];
        let batch = file::read_batch(layout, &dictionaries, &mut opened, block, projection)
            .map_err(failed)?;
        if batch.num_rows() as u64 != place.rows.rows {
            return Err(damaged(format!(
                "record batch {} has {} rows, but had {} when the source was opened",
                place.split,
                batch.num_rows(),
                place.rows.rows
            ))
            .into());
        }
        Ok(batch)
    }
}

impl SplitReader for IpcReader {
    fn content(&self, file: &InputFile) -> Result<ContentHash, SourceError> {
        Ok(file::inspect(file)?.0.content)
    }

    fn read(&self, place: &SplitLocation, scan: &Scan, emit: &Emit) -> Result<()> {
        let batch = self.batch(place, &scan.projection)?;
        let schema = Arc::new(self.schema.project(&scan.projection)?);
        let step = rows_per_batch(place.rows.rows, batch.get_array_memory_size() as u64);
        for start in (0..batch.num_rows()).step_by(step) {
            let piece = batch.slice(start, step.min(batch.num_rows() - start));
            let first = place.rows.first_row + start as u64;
            let numbers = (first..first + piece.num_rows() as u64).collect();
            let batch = plain_batch(&schema, piece.columns(), piece.num_rows())
                .map_err(|e| SourceError::damaged(&place.path, FORMAT, e))?;
            if !emit.send(StoredRows { batch, numbers }) {
                break;
            }
        }
        Ok(())
    }
}
