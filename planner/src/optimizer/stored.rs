//! Rows that a cache holds already.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Looks up the rows that a cache holds.
pub trait CacheContents: fmt::Debug + Send + Sync {
    /// Returns how many of the rows with this [text](crate::rows::canonical::rows_text) are stored.
    fn rows(&self, text: &str) -> u64;
}

/// A cache point that was stored, wholly or partly, when a plan was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPoint {
    /// BLAKE3 of the text that identifies the rows of the cache point.
    pub prefix: String,
    /// Number of these rows that were stored.
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

/// The name under which a saved plan lists the rows with this text: BLAKE3 of the text.
pub(super) fn name_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
