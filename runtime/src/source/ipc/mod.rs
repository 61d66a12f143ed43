//! `ARROW`: files of the Arrow IPC file format (Feather 2); a split is a record batch.

mod cache;
mod file;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{interleave_record_batch, take};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{Result, exec_datafusion_err, internal_datafusion_err};
use forebay_planner::source::SourceSpec;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::content::ContentWatch;
use super::error::SourceError;
use super::listing::{Wanted, list};
use super::options::Options;
use super::plain::{merged_schema, plain_batch, plain_schema};
use super::staged::{FileRows, Place, inspect_all, manifest_of, place};
use super::stream::{Emit, blocking_stream, guarded, rows_per_batch};
use super::{Access, Manifest, Scan, Source, Split, StoredRows, ValueError};
use cache::Cache;
use file::Layout;

const FORMAT: &str = "ARROW";

pub(super) const ARROW: Wanted = Wanted {
    noun: "Arrow IPC",
    extensions: &["arrow", "feather", "ipc"],
    strict: false,
};

/// Arrow IPC files, whose rows are fetched by reference: a row costs a copy once the record batch
/// that it lies in is decoded, and the batches used last are kept.
#[derive(Debug)]
pub struct IpcSource {
    spec: SourceSpec,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    schema: SchemaRef,
    manifest: Manifest,
    paths: Vec<PathBuf>,
    layouts: Vec<Layout>,
    cache: Cache,
    watch: ContentWatch,
}

impl IpcSource {
    /// Opens the files: reads their footers and the header of each record batch. They have no
    /// options.
    pub async fn open(spec: &SourceSpec) -> Result<Self> {
        Options::new(spec, &[])?;
        if spec.columns.is_some() {
            return Err(SourceError::Schema(
                "ARROW files say their columns themselves: leave out the column list".to_owned(),
            )
            .into());
        }
        let listing = list(&spec.location, &ARROW).await?;
        let found = inspect_all(&listing, FORMAT, |listed| {
            Ok(file::inspect(&listed.absolute)?)
        })
        .await?;
        let mut files = Vec::with_capacity(found.len());
        let mut layouts = Vec::with_capacity(found.len());
        for ((layout, rows), listed) in found.into_iter().zip(&listing.files) {
            let splits = splits_of(&layout, &rows).ok_or_else(|| {
                SourceError::damaged(&listed.absolute, FORMAT, "its row counts overflow")
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
        let (manifest, paths) = manifest_of(listing, files);
        let inner = Inner {
            schema,
            manifest,
            paths,
            layouts,
            cache: Cache::default(),
            watch: ContentWatch::default(),
        };
        Ok(Self {
            spec: spec.clone(),
            inner: Arc::new(inner),
        })
    }
}

fn splits_of(layout: &Layout, rows: &[u64]) -> Option<Vec<Split>> {
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

impl Inner {
    /// The stored record batch at a place, from the cache or the file.
    fn batch(&self, place: &Place) -> Result<RecordBatch> {
        let key = (place.file, place.split);
        if let Some(batch) = self.cache.batch(key) {
            return Ok(batch);
        }
        guarded(&place.path, FORMAT, || {
            let check = || {
                self.watch
                    .check(place, |path| Ok(file::inspect(path)?.0.content))
            };
            check()?;
            let damaged = |cause: String| SourceError::damaged(&place.path, FORMAT, cause);
            let failed =
                |e: arrow::error::ArrowError| damaged(format!("record batch {}: {e}", place.split));
            let mut opened = place.open()?;
            let layout = &self.layouts[place.file];
            let decoder = match self.cache.decoder(place.file) {
                Some(decoder) => decoder,
                None => {
                    let decoder = Arc::new(file::decoder(layout, &mut opened).map_err(failed)?);
                    self.cache.keep_decoder(place.file, Arc::clone(&decoder));
                    decoder
                }
            };
            let batch = file::read_batch(&decoder, &mut opened, &layout.blocks[place.split])
                .map_err(failed)?;
            if batch.num_rows() as u64 != place.rows.rows {
                return Err(damaged(format!("record batch {} has changed", place.split)).into());
            }
            // It may have been written again meanwhile.
            check()?;
            self.cache.keep_batch(key, batch.clone());
            Ok(batch)
        })
    }

    fn read_split(&self, place: &Place, scan: &Scan, emit: &Emit) -> Result<()> {
        let batch = self.batch(place)?.project(&scan.projection)?;
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

    /// The split that holds a row, and the row's number in it.
    fn find(&self, file: u32, row: u64) -> Result<(usize, usize, u64)> {
        let splits = self
            .manifest
            .files
            .get(file as usize)
            .map(|found| found.splits.as_slice());
        let found = splits.and_then(|splits| {
            // Of several splits that begin at the row all but the last are empty.
            let split = splits
                .partition_point(|split| split.first_row <= row)
                .checked_sub(1)?;
            let within = row - splits[split].first_row;
            (within < splits[split].rows).then_some((file as usize, split, within))
        });
        found.ok_or_else(|| internal_datafusion_err!("no row {row} of file {file} in the source"))
    }

    fn fetch(&self, rows: &[(u32, u64)], projection: &[usize]) -> Result<RecordBatch> {
        let schema = Arc::new(self.schema.project(projection)?);
        let found = rows
            .iter()
            .map(|&(file, row)| self.find(file, row))
            .collect::<Result<Vec<_>>>()?;
        if schema.fields().is_empty() || rows.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let columns = RecordBatch::new_empty(Arc::clone(&schema))
                .columns()
                .to_vec();
            return Ok(RecordBatch::try_new_with_options(
                schema, columns, &options,
            )?);
        }
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|&at| found[at]);
        let mut places = vec![(0, 0); rows.len()];
        let mut taken = Vec::new();
        let same = |a: &usize, b: &usize| (found[*a].0, found[*a].1) == (found[*b].0, found[*b].1);
        for group in order.chunk_by(same) {
            let Some(&first) = group.first() else {
                continue;
            };
            let (file, split, _) = found[first];
            let place = place(&self.manifest, &self.paths, file, split)?;
            let stored = self.batch(&place)?;
            let within = UInt64Array::from_iter_values(group.iter().map(|&at| found[at].2));
            let columns = projection
                .iter()
                .map(|&column| take(stored.column(column), &within, None))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            for (row, &at) in group.iter().enumerate() {
                places[at] = (taken.len(), row);
            }
            let batch = plain_batch(&schema, &columns, group.len())
                .map_err(|e| SourceError::damaged(&place.path, FORMAT, e))?;
            taken.push(batch);
        }
        Ok(interleave_record_batch(
            &taken.iter().collect::<Vec<_>>(),
            &places,
        )?)
    }
}

#[async_trait]
impl Source for IpcSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> &SchemaRef {
        &self.inner.schema
    }

    fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    fn access(&self) -> Access {
        Access::Direct
    }

    fn read_split(
        &self,
        file: usize,
        split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, Result<StoredRows>> {
        let place = match place(&self.inner.manifest, &self.inner.paths, file, split) {
            Ok(place) => place,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let inner = Arc::clone(&self.inner);
        let scan = scan.clone();
        blocking_stream(place.path.clone(), FORMAT, move |emit| {
            inner.read_split(&place, &scan, emit)
        })
    }

    async fn fetch(
        &self,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)> {
        let inner = Arc::clone(&self.inner);
        let (rows, projection) = (rows.to_vec(), projection.to_vec());
        let batch = tokio::task::spawn_blocking(move || inner.fetch(&rows, &projection))
            .await
            .map_err(|e| exec_datafusion_err!("reading Arrow files was interrupted: {e}"))??;
        Ok((batch, Vec::new()))
    }
}
