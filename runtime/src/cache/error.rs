//! What can be wrong with a cache, said in one sentence.

use super::key::CacheKey;

/// Why the cache could not do what was asked for.
///
/// Rows that are damaged, missing or evicted are no error: they are absent, and are computed again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A text that is no key.
    #[error(
        "'{text}' is no cache key: expected 64 hexadecimal digits, or the first of them as `forebay cache ls` prints"
    )]
    Key {
        /// What was given.
        text: String,
    },
    /// No entry has the key.
    #[error("the cache has no entry '{text}': `forebay cache ls` lists them all")]
    Unknown {
        /// What was given.
        text: String,
    },
    /// Several entries have keys that begin so.
    #[error("{found} entries of the cache begin with '{text}': give more digits")]
    Ambiguous {
        /// What was given.
        text: String,
        /// How many entries it may mean.
        found: usize,
    },
    /// The location of a cache cannot be used.
    #[error("cannot use '{location}' as a cache: {cause}")]
    Location {
        /// As the user wrote it.
        location: String,
        /// Why.
        cause: String,
    },
    /// An entry cannot be changed while another process writes it.
    #[error("the cache entry {} is being written by another process: try again when that has ended", .key.short())]
    Busy {
        /// The entry.
        key: CacheKey,
    },
    /// The store could not read or write.
    #[error("the cache cannot {action} '{path}': {source}")]
    Store {
        /// What was tried.
        action: &'static str,
        /// The object, in the store.
        path: String,
        /// What the store answered.
        #[source]
        source: object_store::Error,
    },
    /// The operating system could not do what the cache needs of a directory.
    #[error("the cache cannot {action} '{path}': {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system answered.
        #[source]
        source: std::io::Error,
    },
    /// Another process took over while this one wrote.
    #[error("another process took over the cache entry {} because this one did not renew its lease in time", .key.short())]
    LeaseLost {
        /// The entry.
        key: CacheKey,
    },
    /// Rows that cannot be put into one record batch, or be encoded.
    #[error("the cache cannot {action} these rows: {cause}; ask for fewer at a time")]
    Rows {
        /// What was tried.
        action: &'static str,
        /// Why.
        cause: String,
    },
    /// A caller does not keep to the rules.
    #[error("broken invariant of the cache: {0}; please report this as a bug")]
    Invariant(String),
}

impl CacheError {
    /// Whether the user's input or settings are at fault, rather than the store, the system or a
    /// broken invariant of ours.
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
