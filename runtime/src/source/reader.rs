//! Readers of formats: what the runtime knows of a format before it opens a source.

use std::sync::Arc;

use datafusion::common::Result;
use forebay_planner::source::SourceSpec;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::listing::WantedFiles;
use super::opened::Source;

/// The future that opens a source.
pub(super) type Opening<'a> = BoxFuture<'a, Result<Arc<dyn Source>>>;

/// The description of a format's reader.
#[derive(Debug)]
pub(super) struct SourceReader {
    /// The files that a listing takes for this format.
    pub(super) files: WantedFiles,
    /// The names of the format's options, in the order in which messages list them.
    pub(super) options: &'static [&'static str],
    /// Opens a source.
    pub(super) open: fn(&SourceSpec) -> Opening<'_>,
}

/// Boxes the future that opens a source of type `S`.
pub(super) fn boxed<'a, S: Source + 'static>(
    open: impl Future<Output = Result<S>> + Send + 'a,
) -> Opening<'a> {
    async move { Ok(Arc::new(open.await?) as Arc<dyn Source>) }.boxed()
}
