//! Rows that a cache holds already when a plan is chosen.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Looks up the rows that a cache holds.
pub trait CacheContents: fmt::Debug + Send + Sync {
    /// Returns the number of stored rows of the plan that `text`, a
    /// [`rows_text`](crate::rows::canonical::rows_text), identifies.
    fn rows(&self, text: &str) -> u64;
}

/// A cache point some or all of whose rows were in the cache when a plan was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPoint {
    /// BLAKE3 hash, in hexadecimal, of the text that identifies the rows of the cache point.
    pub prefix: String,
    /// Number of rows of the cache point that were in the cache.
    pub rows: u64,
}

impl CacheContents for StoredPoint {
    fn rows(&self, text: &str) -> u64 {
        if self.prefix == name_of(text) {
            self.rows
        } else {
            0
        }
    }
}

/// The name by which a saved plan refers to the rows that `text` identifies: the BLAKE3 hash of
/// `text`, in hexadecimal.
pub(super) fn name_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
