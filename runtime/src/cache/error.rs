//! Errors of caches.

use super::key::CacheKey;

/// The reason for which an operation of the cache failed.
///
/// Rows that are damaged, missing or evicted are not an error: they count as absent, and are
/// computed again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A text is not a cache key.
    #[error(
        "'{text}' is no cache key: expected 64 hexadecimal digits, or the first of them as `forebay cache ls` prints"
    )]
    Key {
        /// The text as the user wrote it.
        text: String,
    },
    /// No entry has the key.
    #[error("the cache has no entry '{text}': `forebay cache ls` lists them all")]
    Unknown {
        /// The digits as the user wrote them.
        text: String,
    },
    /// Several entries have keys that begin with the given digits.
    #[error("{found} entries of the cache begin with '{text}': give more digits")]
    Ambiguous {
        /// The digits as the user wrote them.
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
    /// An entry cannot be changed while another process writes it.
    #[error("the cache entry {} is being written by another process: try again when that has ended", .key.short())]
    Busy {
        /// Key of the entry.
        key: CacheKey,
    },
    /// The store could not read or write.
    #[error("the cache cannot {action} '{path}': {source}")]
    Store {
        /// The operation, as a verb.
        action: &'static str,
        /// Path of the object in the store.
        path: String,
        /// The error of the store.
        #[source]
        source: object_store::Error,
    },
    /// A system call on a directory failed.
    #[error("the cache cannot {action} '{path}': {source}")]
    System {
        /// The operation, as a verb.
        action: &'static str,
        /// Path of the file.
        path: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Another process took over an entry while this process wrote it.
    #[error("another process took over the cache entry {} because this one did not renew its lease in time", .key.short())]
    LeaseLost {
        /// Key of the entry.
        key: CacheKey,
    },
    /// Rows could not be put into one record batch, or not be encoded.
    #[error("the cache cannot {action} these rows: {cause}; ask for fewer at a time")]
    Rows {
        /// The operation, as a verb.
        action: &'static str,
        /// The reason.
        cause: String,
    },
    /// A caller of the cache broke one of its rules.
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
                | Self::Busy { .. }
        )
    }

    pub(super) fn store(
        action: &'static str,
        path: &object_store::path::Path,
        source: object_store::Error,
    ) -> Self {
        Self::Store {
            action,
            path: path.to_string(),
            source,
        }
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
