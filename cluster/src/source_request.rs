//! Requests about sources: a client that has no access to the data opens sources and reads rows
//! through workers.

use forebay_runtime::source::{Access, ValueError};
use serde::{Deserialize, Serialize};

/// Number of files in one value of the column that carries a manifest.
pub(crate) const FILES_PER_VALUE: usize = 4096;

/// A request about a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRequest {
    /// The description of the source, encoded.
    pub spec: Vec<u8>,
    /// The action of the worker.
    pub action: SourceAction,
}

/// The action of a worker that gets a [`SourceRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceAction {
    /// List the files, and read their columns and row counts. The result is a batch with the
    /// manifest.
    Open,
    /// Read rows of a split in stored order. The last column of the result has the numbers of the
    /// rows in the file.
    ReadSplit {
        /// Hash of the manifest in which the client found the split.
        files: String,
        /// Index of the file.
        file: u32,
        /// Index of the split in the file.
        split: u32,
        /// Indices of the columns, ascending.
        projection: Vec<u32>,
        /// Number of rows that the client has already.
        skip: u64,
        /// Size in bytes at which the result is large enough.
        max_bytes: u64,
    },
    /// Read rows by reference.
    Fetch {
        /// Hash of the manifest in which the client found the rows.
        files: String,
        /// Index of the file, and number of the row in the file.
        rows: Vec<(u32, u64)>,
        /// Indices of the columns.
        projection: Vec<u32>,
    },
}

/// The result of a [`SourceRequest`], without its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceReply {
    /// The source was opened.
    Opened {
        /// The columns, as JSON.
        schema: Vec<u8>,
        /// The cheapest way to read rows in any order.
        access: Access,
        /// Number of files in the manifest.
        files: u64,
        /// The links that the listing followed.
        links: Vec<String>,
    },
    /// Rows of a split were read.
    Rows {
        /// True if no row of the split is left.
        is_last: bool,
    },
    /// Rows were read by reference. Values that cannot be read are described here.
    Fetched(Vec<ValueError>),
}
