//! Sources: snapshot manifests, splits, and rows by reference.
//!
//! | Module | Format | Split | Access |
//! |---|---|---|---|
//! | `images` | `IMAGEFOLDER` | a file | direct |
//! | `parquet` | `PARQUET` | a row group | staged |
//! | `csv` | `CSV` | a run of rows | staged |
//! | `json` | `JSON` | a run of rows | staged |
//! | `avro` | `AVRO` | a run of blocks | staged |
//! | `ipc` | `ARROW` | a record batch | staged |

mod avro;
pub(crate) mod content;
mod csv;
mod error;
mod images;
mod ipc;
mod json;
mod listing;
mod options;
mod overlap;
mod parquet;
mod plain;
mod resolver;
mod runs;
mod staged;
mod stream;
mod table;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use forebay_planner::source::SourceSpec;
use futures::stream::BoxStream;

pub use content::ContentHash;
pub use error::{FileChange, SourceError};
pub use images::ImageFolder;
pub use overlap::{check_output, is_output_clash};
pub use resolver::FileResolver;
pub use staged::StagedSource;
pub use table::{SourceExec, SourceTable};

/// The files of a source at the moment it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Files in ascending order of their relative path.
    pub files: Vec<SourceFile>,
    /// The folders below the source's location that symbolic links lead to, by the paths of the links relative to
    /// it; files may come to be in them.
    pub links: Vec<String>,
}

/// A file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Path relative to the source's location, with `/` between parts.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// The store's entity tag, where it has one that does not change with the time of copying.
    pub etag: Option<String>,
    /// Identity of the content, as far as opening the source read it.
    pub content: ContentHash,
    /// When it was changed last, in nanoseconds since 1970, where known: no part of the snapshot's
    /// identity, but cached rows of a file that was touched are not used.
    pub modified: Option<i128>,
    /// The units of reading, in stored order; together they hold every row of the file.
    pub splits: Vec<Split>,
}

impl SourceFile {
    /// Identifies the file's rows, wherever it is: a hash of its size, entity tag, content and number of rows.
    /// Whatever names a file is made of this and of its place.
    pub fn identity(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        // Lengths and markers before the parts: no two descriptions are the same bytes.
        hasher.update(&[u8::from(self.etag.is_some())]);
        let etag = self.etag.as_deref().unwrap_or_default();
        hasher.update(&(etag.len() as u64).to_le_bytes());
        hasher.update(etag.as_bytes());
        hasher.update(self.content.bytes());
        hasher.update(&self.rows().to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Stored rows.
    pub fn rows(&self) -> u64 {
        let rows = self.splits.iter().map(|split| split.rows);
        rows.fold(0, u64::saturating_add)
    }
}

/// A unit of reading: an image file, a Parquet row group, an IPC record batch, a run of CSV rows.
/// Where splits begin follows from the file and versioned constants alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Number of the split's first row in the file.
    pub first_row: u64,
    /// Stored rows.
    pub rows: u64,
    /// Bytes that reading the split takes, at most.
    pub bytes: u64,
}

/// What to read of a split.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Indices into the source's schema, ascending.
    pub projection: Vec<usize>,
    /// A predicate over the source's whole schema. Rows for which it is certainly not true may be
    /// left out (pruning); the others must come. `None`: every row comes.
    pub prune: Option<Arc<dyn PhysicalExpr>>,
}

/// Rows of a split, with their numbers in the file.
#[derive(Debug, Clone)]
pub struct StoredRows {
    /// The projected columns.
    pub batch: RecordBatch,
    /// Row number in the file of each row of `batch`, ascending.
    pub numbers: Vec<u64>,
}

/// A value that could not be read, where the rest of the source is sound (a file of a folder).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// Index of the row in the fetched batch.
    pub row: usize,
    /// Index of the column in the fetched batch.
    pub column: usize,
    /// What went wrong.
    pub cause: String,
}

/// How rows are best got at in another order than the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Each row by reference ([`Source::fetch`]).
    Direct,
    /// Split by split; a window's rows must be held, or spilled, to be reordered.
    Staged,
}

/// An opened source.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync {
    /// What the user said of it.
    fn spec(&self) -> &SourceSpec;
    /// Its columns.
    fn schema(&self) -> &SchemaRef;
    /// Its files, splits and stored row counts.
    fn manifest(&self) -> &Manifest;
    /// How its rows are best got at.
    fn access(&self) -> Access;

    /// Reads a split in stored order, in batches of bounded bytes. Structural damage is an error
    /// that names the file.
    fn read_split(
        &self,
        file: usize,
        split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, Result<StoredRows>>;

    /// Fetches rows by (file index, row number), in the order asked for. Only where
    /// [`access`](Self::access) is [`Access::Direct`].
    async fn fetch(
        &self,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)>;
}
