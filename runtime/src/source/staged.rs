//! Sources whose splits a blocking reader reads from beginning to end.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use forebay_planner::source::SourceSpec;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::content::{ContentHash, ContentWatch};
use super::error::{FileChange, SourceError};
use super::listing::{Listed, Listing, modified};
use super::stream::{Emit, blocking_stream, guarded};
use super::{Access, Manifest, Scan, Source, SourceFile, Split, StoredRows, ValueError};
use crate::task;

/// Files that are opened at the same time while a source is opened.
const OPENERS: usize = 16;

/// Where a split lies.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Index of the file.
    pub(crate) file: usize,
    /// Index of the split in the file.
    pub(crate) split: usize,
    /// Where to open the file.
    pub(crate) path: PathBuf,
    /// Bytes of the file when the source was opened.
    pub(crate) size: u64,
    /// When the file was changed last before that.
    pub(crate) modified: Option<i128>,
    /// Content of the file when the source was opened.
    pub(crate) content: ContentHash,
    /// The rows of the split.
    pub(crate) rows: Split,
}

impl Place {
    /// Opens the file, which must have the size that it had.
    pub(crate) fn open(&self) -> Result<File, SourceError> {
        let (file, now) = open(&self.path)?;
        if now != self.size {
            return Err(SourceError::Changed {
                path: self.path.clone(),
                change: FileChange::Size {
                    was: self.size,
                    now,
                },
            });
        }
        Ok(file)
    }

    /// When the file was changed last.
    pub(crate) fn modified_now(&self) -> Result<Option<i128>, SourceError> {
        let meta = std::fs::metadata(&self.path);
        let meta = meta.map_err(|error| SourceError::unreadable(&self.path, error))?;
        Ok(modified(&meta))
    }
}

/// Content and splits of a file that was opened.
#[derive(Debug)]
pub(crate) struct FileRows {
    pub(crate) content: ContentHash,
    pub(crate) splits: Vec<Split>,
}

/// Opens a file and tells its size.
pub(crate) fn open(path: &Path) -> Result<(File, u64), SourceError> {
    let unreadable = |error| SourceError::unreadable(path, error);
    let file = File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    Ok((file, size))
}

/// How a format reads one split.
pub(crate) trait SplitReader: fmt::Debug + Send + Sync + 'static {
    /// Emits the rows of a split that the scan asks for, in stored order, until they end or nobody
    /// listens.
    fn read(&self, place: &Place, scan: &Scan, emit: &Emit) -> Result<()>;

    /// Identifies the content of a file as opening the source did.
    fn content(&self, path: &Path) -> Result<ContentHash, SourceError>;
}

/// A source of files that are read split by split: all formats but image folders.
#[derive(Debug)]
pub struct StagedSource {
    spec: SourceSpec,
    schema: SchemaRef,
    manifest: Manifest,
    paths: Vec<PathBuf>,
    reader: Arc<dyn SplitReader>,
    watch: Arc<ContentWatch>,
}

impl StagedSource {
    /// The source of the listed files, whose rows are `rows`, in the same order.
    pub(crate) fn new(
        spec: &SourceSpec,
        schema: SchemaRef,
        listing: Listing,
        rows: Vec<FileRows>,
        reader: Arc<dyn SplitReader>,
    ) -> Self {
        let (manifest, paths) = manifest_of(listing, rows);
        Self {
            spec: spec.clone(),
            schema,
            manifest,
            paths,
            reader,
            watch: Arc::default(),
        }
    }
}

/// The manifest of listed files, and where to open each.
pub(crate) fn manifest_of(listing: Listing, rows: Vec<FileRows>) -> (Manifest, Vec<PathBuf>) {
    let links = listing.links;
    let mut paths = Vec::with_capacity(listing.files.len());
    let mut files = Vec::with_capacity(listing.files.len());
    for (file, FileRows { content, splits }) in listing.files.into_iter().zip(rows) {
        paths.push(file.absolute);
        files.push(SourceFile {
            path: file.relative,
            size: file.size,
            etag: None,
            content,
            modified: file.modified,
            splits,
        });
    }
    (Manifest { files, links }, paths)
}

/// Finds a split in a manifest.
pub(crate) fn place(
    manifest: &Manifest,
    paths: &[PathBuf],
    file: usize,
    split: usize,
) -> Result<Place> {
    let found = manifest.files.get(file).zip(paths.get(file));
    let found = found.and_then(|(f, path)| Some((f, path, f.splits.get(split)?)));
    let (entry, path, rows) = found
        .ok_or_else(|| internal_datafusion_err!("no split {split} of file {file} in the source"))?;
    Ok(Place {
        file,
        split,
        path: path.clone(),
        size: entry.size,
        modified: entry.modified,
        content: entry.content,
        rows: rows.clone(),
    })
}

#[async_trait]
impl Source for StagedSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn access(&self) -> Access {
        Access::Staged
    }

    fn read_split(
        &self,
        file: usize,
        split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, Result<StoredRows>> {
        let place = match place(&self.manifest, &self.paths, file, split) {
            Ok(place) => place,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let (reader, watch) = (Arc::clone(&self.reader), Arc::clone(&self.watch));
        let scan = scan.clone();
        let format = self.spec.format.name();
        blocking_stream(place.path.clone(), format, move |emit| {
            let check = || watch.check(&place, |path| reader.content(path));
            check()?;
            reader.read(&place, &scan, emit)?;
            // It may have been written again meanwhile.
            Ok(check()?)
        })
    }

    async fn fetch(
        &self,
        _rows: &[(u32, u64)],
        _projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)> {
        internal_err!(
            "{} files are read split by split, not by reference",
            self.spec.format
        )
    }
}

/// Runs `inspect` over every listed file, several at a time; the first error in the order of the
/// files wins.
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
                guarded(&file.absolute, format, || inspect(&file))
            });
            async move { opened.await? }
        })
        .buffered(OPENERS)
        .try_collect()
        .await
}
