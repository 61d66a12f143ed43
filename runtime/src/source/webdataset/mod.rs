//! `WEBDATASET`: shards of samples, tar archives that may be compressed by gzip; a split is a range
//! of samples.
//!
//! A sample consists of consecutive entries with the same key, as in the `webdataset` library. The
//! key is the path up to the first dot of the base name. The text after this dot, in lower case,
//! names a column; the column `__key__` holds the keys. Columns are bytes, except `txt` and `json`
//! (Utf8) and `cls` (Int64). Entries without an extension, hidden entries and entries with a path
//! part like `__name__`, which the library reserves, belong to no sample.
//!
//! Opening a source reads the headers in all shards, for which compressed shards are decompressed.
//! If no shard is compressed, rows are read by reference. The index of samples exists only in
//! memory, as long as the source is open.

mod index;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, exec_err, internal_datafusion_err};
use forebay_planner::source::SourceSpec;

use super::content::{ContentHash, ContentHasher};
use super::error::SourceError;
use super::file_source::{FileRows, FileSource, SplitReader, inspect_all};
use super::input::{InputFile, KeptBytes, fetch_all};
use super::listing::{WantedFiles, list};
use super::options::SourceOptions;
use super::reader::{SourceReader, boxed};
use super::split_location::SplitLocation;
use super::stream::{BATCH_BYTES, BATCH_ROWS, Emit};
use super::tar::{Archive, TarEntries};
use super::value_column::ValueColumn;
use super::{Access, Scan, Split, StoredRows, ValueError};
use crate::objects::ObjectStores;
use index::{KEY, MAX_EXTENSIONS, SampleValue, Shard, too_many_extensions};

const FORMAT: &str = "WEBDATASET";

/// Maximum size of a value in bytes. A larger value is an error of its row.
const MAX_VALUE_BYTES: u64 = 1 << 30;

/// Maximum number of shards that one fetch holds open, because systems allow a process only about
/// 1000 open files.
const MAX_OPEN: usize = 64;

/// Maximum size in bytes of one column of a batch, because the offsets of `Binary` are 32-bit. A
/// larger column is an error.
const MAX_COLUMN_BYTES: u64 = i32::MAX as u64;

pub(super) static READER: SourceReader = SourceReader {
    files: WantedFiles {
        noun: "tar",
        extensions: &["tar", "tar.gz", "tgz"],
        strict: false,
    },
    options: &[],
    open: |spec, stores| boxed(open(spec, stores)),
};

/// Opens shards, and reads the headers of all entries. The format has no options.
async fn open(spec: &SourceSpec, stores: &ObjectStores) -> Result<FileSource> {
    SourceOptions::new(spec, READER.options)?;
    if spec.columns.is_some() {
        let message =
            "WEBDATASET shards define their columns themselves: leave out the column list";
        return Err(SourceError::Schema(message.to_owned()).into());
    }
    let listing = list(&spec.location, &READER.files, stores).await?;
    let scanned = inspect_all(&listing, FORMAT, |file| Ok(scan(&file.file)?)).await?;
    let extensions: BTreeSet<&str> = scanned
        .iter()
        .flat_map(|(_, shard)| shard.extensions.iter().map(String::as_str))
        .collect();
    if extensions.len() > MAX_EXTENSIONS {
        return Err(SourceError::Schema(too_many_extensions(extensions.len())).into());
    }
    let mut fields = vec![Field::new(KEY, DataType::Utf8, false)];
    fields.extend(
        extensions
            .iter()
            .map(|name| Field::new(*name, type_of(name), true)),
    );
    let schema = Arc::new(Schema::new(fields));
    let (rows, mut shards): (Vec<FileRows>, Vec<Shard>) = scanned.into_iter().unzip();
    for shard in &mut shards {
        let columns = shard.extensions.iter().map(|name| schema.index_of(name));
        shard.columns = columns.collect::<std::result::Result<_, _>>()?;
    }
    let reader = Arc::new(ShardReader {
        schema: Arc::clone(&schema),
        shards,
    });
    Ok(FileSource::new(spec, schema, listing, rows, reader))
}

fn type_of(extension: &str) -> DataType {
    match extension {
        "txt" | "json" => DataType::Utf8,
        "cls" => DataType::Int64,
        _ => DataType::Binary,
    }
}

/// Reads the headers of the entries in a shard. Returns the shard's splits with its content hash,
/// and its index.
fn scan(file: &InputFile) -> Result<(FileRows, Shard), SourceError> {
    let path = &file.name();
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    let unreadable = |error| SourceError::unreadable(path, error);
    let hasher = ContentHasher::new(FORMAT, "");
    let (file, size) = file.open()?;
    let archive = Archive::new(file, size, hasher.clone()).map_err(unreadable)?;
    let mut shard = Shard::new(archive.is_compressed());
    let mut entries = TarEntries::new(archive, hasher);
    while let Some(entry) = entries.next().map_err(damaged)? {
        shard.add(entry).map_err(damaged)?;
    }
    let (headers, archive) = entries.finish();
    let content = archive.content(headers).map_err(unreadable)?;
    let splits = shard.splits();
    Ok((FileRows { content, splits }, shard))
}

/// Builds a batch of samples, with the projected columns.
#[derive(Debug)]
struct Samples {
    schema: SchemaRef,
    columns: Vec<ValueColumn>,
    /// For each column of the source's schema, its index in `columns`; `None` when the column is
    /// not projected.
    projected: Vec<Option<usize>>,
    rows: usize,
    bytes: u64,
}

impl Samples {
    fn new(source: &Schema, projection: &[usize]) -> Result<Self> {
        let schema = Arc::new(source.project(projection)?);
        let mut projected = vec![None; source.fields().len()];
        for (index, &column) in projection.iter().enumerate() {
            projected[column] = Some(index);
        }
        let types = schema.fields().iter().map(|field| field.data_type());
        Ok(Self {
            columns: types.map(ValueColumn::new).collect(),
            schema,
            projected,
            rows: 0,
            bytes: 0,
        })
    }

    /// Adds the sample with this key and these values. A value that cannot be read from `archive`
    /// becomes null, and `failed` is called with the index of the value's column in `columns`, and
    /// the cause.
    fn push(
        &mut self,
        shard: &Shard,
        (key, values): (&str, &[SampleValue]),
        archive: &mut Archive,
        mut failed: impl FnMut(usize, String) -> Result<()>,
    ) -> Result<()> {
        let mut push = |column: usize, size: u64, value: Option<&SampleValue>| {
            let Some(index) = self.projected[column] else {
                return Ok(());
            };
            let column = &mut self.columns[index];
            let name = self.schema.field(index).name();
            if column.bytes() as u64 + size > MAX_COLUMN_BYTES {
                return exec_err!(
                    "the values of the column \"{name}\" take more than the {MAX_COLUMN_BYTES} bytes that a batch can hold: use smaller batches"
                );
            }
            self.bytes += size;
            let read = column.push(|bytes| match value {
                None => {
                    bytes.extend_from_slice(key.as_bytes());
                    Ok(())
                }
                Some(_) if size > MAX_VALUE_BYTES => Err(format!(
                    "a value of {size} bytes, above the limit of {MAX_VALUE_BYTES}"
                )),
                Some(value) => {
                    let read = archive.read_at(value.offset, size, bytes);
                    read.map_err(|error| error.to_string())
                }
            });
            read.or_else(|cause| failed(index, format!("sample '{key}', {name}: {cause}")))
        };
        push(0, key.len() as u64, None)?;
        for value in values {
            push(shard.columns[value.extension], value.size, Some(value))?;
        }
        self.rows += 1;
        for column in &mut self.columns {
            if column.rows() < self.rows {
                column.push_null();
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<RecordBatch> {
        let columns = self.columns.into_iter().map(ValueColumn::finish);
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(
            self.schema,
            columns,
            &options,
        )?)
    }
}

/// Opens a shard. Of an object, `kept` has the bytes that will be read.
fn open_archive(
    place: &SplitLocation,
    shard: &Shard,
    kept: Option<&Arc<KeptBytes>>,
) -> Result<Archive, SourceError> {
    let mut file = place.open()?;
    if let Some(kept) = kept {
        file.use_kept(kept);
    }
    if !shard.is_compressed {
        return Ok(Archive::plain(file, place.size));
    }
    let archive = Archive::new(file, place.size, ContentHasher::new(FORMAT, ""));
    archive.map_err(|error| SourceError::unreadable(&place.path, error))
}

#[derive(Debug)]
struct ShardReader {
    schema: SchemaRef,
    /// The index of each shard.
    shards: Vec<Shard>,
}

impl ShardReader {
    /// Fetches the projected values of `rows` from shards that are objects. Returns the bytes of
    /// each shard.
    fn fetched(
        &self,
        places: &BTreeMap<u32, SplitLocation>,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<BTreeMap<u32, Arc<KeptBytes>>> {
        let mut ranges: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
        for (file, row) in rows {
            let (shard, (_, values)) = self.sample(*file as usize, *row)?;
            if shard.is_compressed || !places[file].input.is_object() {
                continue;
            }
            let is_wanted = |value: &&SampleValue| {
                projection.contains(&shard.columns[value.extension])
                    && value.size <= MAX_VALUE_BYTES
            };
            let of_row = values.iter().filter(is_wanted);
            let of_row = of_row.map(|value| value.offset..value.offset + value.size);
            ranges.entry(*file).or_default().extend(of_row);
        }
        let wanted =
            { ranges.into_iter() }.map(|(file, ranges)| (file, &places[&file].input, ranges));
        Ok(fetch_all(wanted.collect())?)
    }

    fn sample(&self, file: usize, row: u64) -> Result<(&Shard, (&str, &[SampleValue]))> {
        let shard = self.shards.get(file);
        let found = shard.and_then(|shard| Some((shard, shard.sample(row)?)));
        found.ok_or_else(|| internal_datafusion_err!("no sample {row} in shard {file}"))
    }
}

impl SplitReader for ShardReader {
    fn content(&self, file: &InputFile) -> Result<ContentHash, SourceError> {
        Ok(scan(file)?.0.content)
    }

    fn access(&self) -> Access {
        if self.shards.iter().any(|shard| shard.is_compressed) {
            Access::Staged
        } else {
            Access::Direct
        }
    }

    fn read(&self, place: &SplitLocation, scan: &Scan, emit: &Emit) -> Result<()> {
        let Split {
            first_row, rows, ..
        } = place.rows;
        let file = u32::try_from(place.file).unwrap_or(u32::MAX);
        let places = BTreeMap::from([(file, place.clone())]);
        let numbers: Vec<(u32, u64)> = (first_row..first_row + rows)
            .map(|row| (file, row))
            .collect();
        let kept = self.fetched(&places, &numbers, &scan.projection)?;
        let mut archive = open_archive(place, &self.shards[place.file], kept.get(&file))?;
        let mut first = first_row;
        let mut samples = Samples::new(&self.schema, &scan.projection)?;
        for row in first_row..first_row + rows {
            let (shard, sample) = self.sample(place.file, row)?;
            samples.push(shard, sample, &mut archive, |_, cause| {
                Err(SourceError::damaged(&place.path, FORMAT, cause).into())
            })?;
            let is_full = samples.bytes >= BATCH_BYTES || samples.rows >= BATCH_ROWS;
            if is_full || row + 1 == first_row + rows {
                let next = Samples::new(&self.schema, &scan.projection)?;
                let batch = std::mem::replace(&mut samples, next).finish()?;
                let numbers = (first..=row).collect();
                first = row + 1;
                if !emit.send(StoredRows { batch, numbers }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn fetch(
        &self,
        places: &BTreeMap<u32, SplitLocation>,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)> {
        let kept = self.fetched(places, rows, projection)?;
        let mut archives: BTreeMap<u32, Archive> = BTreeMap::new();
        let mut samples = Samples::new(&self.schema, projection)?;
        let mut errors = Vec::new();
        for (row, (file, number)) in rows.iter().enumerate() {
            let (shard, sample) = self.sample(*file as usize, *number)?;
            let place = &places[file];
            if archives.len() == MAX_OPEN && !archives.contains_key(file) {
                archives.pop_first();
            }
            let archive = match archives.entry(*file) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(open_archive(place, shard, kept.get(file))?),
            };
            samples.push(shard, sample, archive, |column, cause| {
                let cause = SourceError::damaged(&place.path, FORMAT, cause).to_string();
                errors.push(ValueError { row, column, cause });
                Ok(())
            })?;
        }
        Ok((samples.finish()?, errors))
    }
}
