//! Descriptions of the formats' readers: the facts about a format that are needed before a source
//! is opened.

use std::sync::Arc;

use datafusion::common::Result;
use forebay_planner::source::SourceSpec;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::listing::WantedFiles;
use super::opened::Source;
use crate::objects::ObjectStores;

/// A future that opens a source.
pub(super) type SourceFuture<'a> = BoxFuture<'a, Result<Arc<dyn Source>>>;

/// The description of a format's reader.
#[derive(Debug)]
pub(super) struct SourceReader {
    /// The names of the files that belong to this format.
    pub(super) files: WantedFiles,
    /// The names of the format's options, in the order in which messages list them.
    pub(super) options: &'static [&'static str],
    /// Opens the source that a `SourceSpec` describes. Its location may be in one of the stores.
    pub(super) open: for<'a> fn(&'a SourceSpec, &'a ObjectStores) -> SourceFuture<'a>,
}

/// Boxes `open`, a future that opens a source of the type `S`.
pub(super) fn boxed<'a, S: Source + 'static>(
    open: impl Future<Output = Result<S>> + Send + 'a,
) -> SourceFuture<'a> {
    async move { Ok(Arc::new(open.await?) as Arc<dyn Source>) }.boxed()
}
