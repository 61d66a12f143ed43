//! Errors of caches.

use super::key::CacheKey;
use crate::objects::StoreError;

/// The reason for which an operation of the cache failed.
///
/// Rows that are damaged, missing or evicted are not an error: such rows count as absent, and are
/// computed again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A text is not a cache key.
    #[error(
        "'{text}' is not a cache key: expected 64 lower-case hexadecimal digits, or the leading digits that `forebay cache ls` prints"
    )]
    Key {
        /// The text as the user wrote it.
        text: String,
    },
    /// No entry has a key that begins with the digits that the user wrote.
    #[error("the cache has no entry '{text}': `forebay cache ls` lists them all")]
    Unknown {
        /// The leading digits of a key, as the user wrote these digits.
        text: String,
    },
    /// Several entries have keys that begin with the digits that the user wrote.
    #[error("{found} entries of the cache begin with '{text}': give more digits")]
    Ambiguous {
        /// The leading digits of a key, as the user wrote these digits.
        text: String,
        /// Number of entries whose keys begin with the digits.
        found: usize,
    },
    /// The location of a cache cannot be used.
    #[error("cannot use '{location}' as a cache: {cause}")]
    Location {
        /// The location as the user wrote it.
        location: String,
        /// The reason.
        cause: String,
    },
    /// The object store that a location names cannot be opened.
    #[error(transparent)]
    Objects(#[from] StoreError),
    /// An entry cannot be changed, because another process is writing to the entry.
    #[error("the cache entry {} is being written by another process: try again when that process has ended", .key.short())]
    Busy {
        /// Key of the entry.
        key: CacheKey,
    },
    /// An operation of the object store failed.
    #[error("the cache cannot {action} '{object}': {cause}")]
    Store {
        /// The failed operation, as a verb.
        action: &'static str,
        /// URL of the object, or path of the file in the cache's directory.
        object: String,
        /// The reason and the remedy. The error of the store is not kept, because it may repeat
        /// secret parts of the request.
        cause: String,
    },
    /// A system call on a directory failed.
    #[error("the cache cannot {action} '{path}': {source}")]
    System {
        /// The failed operation, as a verb.
        action: &'static str,
        /// Path of the file.
        path: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Another process took over the right to write an entry while this process was the writer.
    #[error("another process took over the cache entry {} because this process did not renew its lease in time", .key.short())]
    LeaseLost {
        /// Key of the entry.
        key: CacheKey,
    },
    /// Rows could not be gathered into one record batch, or could not be encoded.
    #[error("the cache cannot {action} these rows: {cause}; make batches smaller")]
    Rows {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The reason.
        cause: String,
    },
    /// Code that calls the cache broke a rule of the cache's interface, which is a bug.
    #[error("broken invariant of the cache: {0}; please report this as a bug")]
    Invariant(String),
}

impl CacheError {
    /// True when the user's input or settings are at fault, rather than the store, the operating
    /// system or a broken invariant of Forebay.
    pub fn is_user(&self) -> bool {
        matches!(
            self,
            Self::Key { .. }
                | Self::Unknown { .. }
                | Self::Ambiguous { .. }
                | Self::Location { .. }
                | Self::Objects(_)
                | Self::Busy { .. }
        )
    }

    pub(super) fn system(
        action: &'static str,
        path: &std::path::Path,
        source: std::io::Error,
    ) -> Self {
        Self::System {
            action,
            path: path.display().to_string(),
            source,
        }
    }
}
