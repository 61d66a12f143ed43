//! Sources whose files a blocking reader reads: all formats except image folders.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::{Result, internal_err};
use forebay_planner::source::SourceSpec;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::content::ContentHash;
use super::error::SourceError;
use super::input::{InputFile, with_store_failures};
use super::listing::{Listed, Listing};
use super::manifest::{Manifest, SourceFile, Split};
use super::opened::{Access, Source};
use super::rows::{Scan, StoredRows, ValueError};
use super::split_location::SplitLocation;
use super::stream::{Emit, blocking_stream, guarded};
use super::watch::ContentWatch;
use crate::task;

/// Number of files that are opened concurrently while a source is opened.
const OPENERS: usize = 16;

/// Content hash and splits of one file of a source.
#[derive(Debug)]
pub(crate) struct FileRows {
    pub(crate) content: ContentHash,
    pub(crate) splits: Vec<Split>,
}

/// The reader of the files of one source. Its calls block.
pub(crate) trait SplitReader: fmt::Debug + Send + Sync + 'static {
    /// Emits the rows of the split at `place` that `scan` asks for, in stored order. Stops after
    /// the last row, or when the consumer hangs up.
    fn read(&self, place: &SplitLocation, scan: &Scan, emit: &Emit) -> Result<()>;

    /// Returns the hash of the content that the file has now, computed in the same way as when the
    /// source was opened.
    fn content(&self, file: &InputFile) -> Result<ContentHash, SourceError>;

    /// Returns the cheapest way to read rows in an order other than the stored order.
    fn access(&self) -> Access {
        Access::Staged
    }

    /// Fetches `rows`, given as (file index, row number), in that order. `places` holds the
    /// location of each of these files. Only readers with [`Access::Direct`] implement this method.
    fn fetch(
        &self,
        _places: &BTreeMap<u32, SplitLocation>,
        _rows: &[(u32, u64)],
        _projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)> {
        internal_err!("no rows by reference")
    }
}

/// A source whose files are read by a blocking reader.
#[derive(Debug)]
pub struct FileSource {
    spec: SourceSpec,
    schema: SchemaRef,
    manifest: Arc<Manifest>,
    inputs: Vec<InputFile>,
    reader: Arc<dyn SplitReader>,
    watch: Arc<ContentWatch>,
}

impl FileSource {
    /// Creates the source of the files in `listing`; `rows[i]` describes the rows of the i-th file.
    pub(crate) fn new(
        spec: &SourceSpec,
        schema: SchemaRef,
        listing: Listing,
        rows: Vec<FileRows>,
        reader: Arc<dyn SplitReader>,
    ) -> Self {
        let (manifest, inputs) = manifest_of(listing, rows);
        Self {
            spec: spec.clone(),
            schema,
            manifest: Arc::new(manifest),
            inputs,
            reader,
            watch: Arc::default(),
        }
    }
}

/// Returns the manifest of the files in `listing`, and the place of each file.
pub(crate) fn manifest_of(listing: Listing, rows: Vec<FileRows>) -> (Manifest, Vec<InputFile>) {
    let links = listing.links;
    let mut inputs = Vec::with_capacity(listing.files.len());
    let mut files = Vec::with_capacity(listing.files.len());
    for (file, FileRows { content, splits }) in listing.files.into_iter().zip(rows) {
        inputs.push(file.file);
        files.push(SourceFile {
            path: file.relative,
            size: file.size,
            etag: None,
            content,
            modified: file.modified,
            splits,
        });
    }
    (Manifest { files, links }, inputs)
}

#[async_trait]
impl Source for FileSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn access(&self) -> Access {
        self.reader.access()
    }

    fn read_split(
        &self,
        file: usize,
        split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, Result<StoredRows>> {
        let place = match SplitLocation::find(&self.manifest, &self.inputs, file, split) {
            Ok(place) => place,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let (reader, watch) = (Arc::clone(&self.reader), Arc::clone(&self.watch));
        let scan = scan.clone();
        let format = self.spec.format.name();
        let keep = scan.keep.clone();
        blocking_stream(place.path.clone(), format, keep, move |emit| {
            let check = || watch.check(&place, |file| reader.content(file));
            check()?;
            reader.read(&place, &scan, emit)?;
            // The file may have been replaced during the read.
            Ok(check()?)
        })
    }

    async fn check_split(&self, file: usize, split: usize) -> Result<()> {
        let place = SplitLocation::find(&self.manifest, &self.inputs, file, split)?;
        if place.input.is_object() {
            return Ok(());
        }
        let (reader, watch) = (Arc::clone(&self.reader), Arc::clone(&self.watch));
        let check = move || watch.check(&place, |file| reader.content(file));
        Ok(task::blocking("checking a file", check).await??)
    }

    async fn fetch(
        &self,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)> {
        if self.access() == Access::Staged {
            let format = self.spec.format;
            return internal_err!("{format} files are read split by split, not by reference");
        }
        let mut places = BTreeMap::new();
        for &(file, _) in rows {
            if let Entry::Vacant(vacant) = places.entry(file) {
                let place = SplitLocation::find(&self.manifest, &self.inputs, file as usize, 0)?;
                vacant.insert(place);
            }
        }
        let (reader, watch) = (Arc::clone(&self.reader), Arc::clone(&self.watch));
        let (rows, projection) = (rows.to_vec(), projection.to_vec());
        task::blocking("fetching rows", move || {
            with_store_failures(|| {
                let check = || {
                    let mut places = places.values();
                    places.try_for_each(|place| watch.check(place, |file| reader.content(file)))
                };
                check()?;
                let fetched = reader.fetch(&places, &rows, &projection)?;
                // A file may have been replaced during the fetch.
                check()?;
                Ok(fetched)
            })
        })
        .await?
    }
}

/// Calls `inspect` for every file in `listing`, for several files at a time. If several calls fail,
/// returns the error of the file that is listed first.
pub(crate) async fn inspect_all<T, F>(
    listing: &Listing,
    format: &'static str,
    inspect: F,
) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Fn(&Listed) -> Result<T> + Send + Sync + 'static,
{
    let inspect = Arc::new(inspect);
    stream::iter(listing.files.clone())
        .map(|file| {
            let inspect = Arc::clone(&inspect);
            let opened = task::blocking("opening the source", move || {
                guarded(&file.file.name(), format, || inspect(&file))
            });
            async move { opened.await? }
        })
        .buffered(OPENERS)
        .try_collect()
        .await
}
