//! Opened sources: the trait that every format implements.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use forebay_planner::source::SourceSpec;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::manifest::Manifest;
use super::rows::{Scan, StoredRows, ValueError};

/// The cheapest way to read rows in an order other than the stored order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Each row is read by reference ([`Source::fetch`]).
    Direct,
    /// Rows are read split by split. To reorder rows, all rows of a window must be held in memory
    /// or spilled.
    Staged,
}

/// An opened source.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync {
    /// The description from which the source was opened.
    fn spec(&self) -> &SourceSpec;
    /// The columns that the source has for users.
    fn schema(&self) -> &SchemaRef;
    /// The files, splits and stored row counts.
    fn manifest(&self) -> &Arc<Manifest>;
    /// The cheapest way to read rows in an order other than the stored order.
    fn access(&self) -> Access;

    /// Reads the split with the index `split` of the file with the index `file`, in stored order
    /// and in batches of bounded size. If the file is damaged, the error names the file.
    fn read_split(
        &self,
        file: usize,
        split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, Result<StoredRows>>;

    /// Checks, if it can be done without asking a store, that a split whose rows are in memory still has
    /// the content that it had when the source was opened. `file` and `split` are indices, as in
    /// [`read_split`](Self::read_split).
    async fn check_split(&self, _file: usize, _split: usize) -> Result<()> {
        Ok(())
    }

    /// Fetches `rows`, each given as (file index, row number), in that order. Supported only when
    /// [`access`](Self::access) is [`Access::Direct`].
    async fn fetch(
        &self,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)>;
}
