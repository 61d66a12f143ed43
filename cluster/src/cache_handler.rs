//! A worker's answers to requests about caches.

use forebay_runtime::cache::{CacheOptions, Stores};
use forebay_runtime::error::Error;
use forebay_runtime::run::CacheFacts;

use crate::cache_request::{CacheAction, CacheReply, CacheRequest};
use crate::failure::SegmentFailure;
use crate::lease::LeaseSummary;
use crate::location::mapped;

/// Answers a request about a cache. `roots` maps the client's roots of data to those of this
/// machine.
pub(crate) async fn answer(
    stores: &Stores,
    roots: &[(String, String)],
    request: &CacheRequest,
) -> LeaseSummary {
    let dir = mapped(roots, &request.dir);
    let answered = match request.action {
        CacheAction::Facts => CacheFacts::of(&dir, stores).await.map(CacheReply::Facts),
        CacheAction::Mark => mark(&dir, stores).await.map(CacheReply::Mark),
    };
    match answered {
        Ok(reply) => LeaseSummary::Cache(reply),
        Err(error) => LeaseSummary::Failed(SegmentFailure::of(&error)),
    }
}

async fn mark(dir: &str, stores: &Stores) -> Result<String, Error> {
    let refused = |error: forebay_runtime::cache::CacheError| Error::Config(error.to_string());
    let store = stores.open(dir, CacheOptions::default()).await;
    store.map_err(refused)?.mark().await.map_err(refused)
}
