//! Requests about the store of a pipeline's cache, which workers share and a client need not reach.

use forebay_runtime::run::CacheFacts;
use serde::{Deserialize, Serialize};

/// A request about a cache store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRequest {
    /// Location of the store: a directory as the client names it, or a URL.
    pub dir: String,
    /// The action of the worker.
    pub action: CacheAction,
}

/// The action of a worker that gets a [`CacheRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheAction {
    /// Tell what the choice of a plan depends on.
    Facts,
    /// Open the store, which is created if necessary, and tell its mark.
    Mark,
}

/// The result of a [`CacheRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheReply {
    /// The facts that the choice of a plan depends on.
    Facts(CacheFacts),
    /// The mark of the store. Workers that share the store tell the same one.
    Mark(String),
}
