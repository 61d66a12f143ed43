//! The files of a source and their splits, as they were when it was opened.

use super::content::ContentHash;

/// The files of a source at the moment it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Files in ascending order of their relative path.
    pub files: Vec<SourceFile>,
    /// Paths, relative to the source's location, of the symbolic links that lead to folders. New
    /// files may appear in these folders.
    pub links: Vec<String>,
}

/// A file of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Path relative to the source's location, with `/` as separator.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// The store's entity tag; `None` when the store has none, or one that changes when the file is
    /// copied.
    pub etag: Option<String>,
    /// Hash of the part of the content that opening the source read.
    pub content: ContentHash,
    /// Time of the last change in nanoseconds since 1970; `None` when unknown. It is not part of the
    /// snapshot's identity, but cached rows of a file with another time are not used.
    pub modified: Option<i128>,
    /// The units of reading, in stored order; together they hold every row of the file.
    pub splits: Vec<Split>,
}

impl SourceFile {
    /// Identifies the file's rows wherever the file is: a hash of its size, entity tag, content
    /// hash and number of rows. Code that names a file combines this identity with the file's path.
    pub fn identity(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        // Lengths and markers precede the fields, so that no two descriptions consist of the same
        // bytes.
        hasher.update(&[u8::from(self.etag.is_some())]);
        let etag = self.etag.as_deref().unwrap_or_default();
        hasher.update(&(etag.len() as u64).to_le_bytes());
        hasher.update(etag.as_bytes());
        hasher.update(self.content.bytes());
        hasher.update(&self.rows().to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Number of stored rows.
    pub fn rows(&self) -> u64 {
        let rows = self.splits.iter().map(|split| split.rows);
        rows.fold(0, u64::saturating_add)
    }
}

/// A unit of reading: an image file, a Parquet row group, an IPC record batch, a range of CSV rows.
/// The bounds of splits depend only on the file and on versioned constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Number in the file of the split's first row.
    pub first_row: u64,
    /// Upper bound of the bytes that are read for the split.
    pub rows: u64,
    /// Upper bound of the bytes that are read for the split.
    pub bytes: u64,
}
