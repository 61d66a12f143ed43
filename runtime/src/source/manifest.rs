//! The files and splits that a source had when it was opened.

use serde::{Deserialize, Serialize};

use super::content::ContentHash;

/// The files of a source, as they were when the source was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Files in ascending order of their relative path.
    pub files: Vec<SourceFile>,
    /// Paths, relative to the source's location, of the symbolic links to folders that were
    /// followed. New files may appear in these folders.
    pub links: Vec<String>,
}

/// A file of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Path relative to the source's location, with `/` as separator.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Entity tag of the file in its store; `None` when the store has no entity tags, or when
    /// copying the file would change the tag.
    pub etag: Option<String>,
    /// Hash of the part of the file's content that opening the source read.
    pub content: ContentHash,
    /// Time of the last change in nanoseconds since 1970; `None` when unknown. This time is not
    /// part of the file's identity, but cached rows are not used if the file's time differs.
    pub modified: Option<i128>,
    /// The units of reading, in stored order. Each row of the file belongs to exactly one split.
    pub splits: Vec<Split>,
}

impl Manifest {
    /// Returns the hash that identifies the files and their splits: BLAKE3 over the relative path,
    /// the [identity](SourceFile::identity) and the splits of every file. Copies of the files on
    /// another machine have the same hash.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for file in &self.files {
            hasher.update(&(file.path.len() as u64).to_le_bytes());
            hasher.update(file.path.as_bytes());
            hasher.update(&file.identity());
            hasher.update(&(file.splits.len() as u64).to_le_bytes());
            for split in &file.splits {
                for number in [split.first_row, split.rows, split.bytes] {
                    hasher.update(&number.to_le_bytes());
                }
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

impl SourceFile {
    /// Returns the identity of the file's rows, which does not depend on the file's path: a hash of
    /// size, entity tag, content hash and number of rows.
    pub fn identity(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.size.to_le_bytes());
        // A marker and a length precede the entity tag, so that different files never give the same
        // hashed bytes.
        hasher.update(&[u8::from(self.etag.is_some())]);
        let etag = self.etag.as_deref().unwrap_or_default();
        hasher.update(&(etag.len() as u64).to_le_bytes());
        hasher.update(etag.as_bytes());
        hasher.update(self.content.bytes());
        hasher.update(&self.rows().to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Returns the number of stored rows.
    pub fn rows(&self) -> u64 {
        let rows = self.splits.iter().map(|split| split.rows);
        rows.fold(0, u64::saturating_add)
    }
}

/// A unit of reading: an image file, a Parquet row group, an IPC record batch, a range of CSV rows.
/// The bounds of splits depend only on the file and on versioned constants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Row number in the file of the split's first row.
    pub first_row: u64,
    /// Number of rows in the split.
    pub rows: u64,
    /// Upper bound of the bytes that are read for the split.
    pub bytes: u64,
}
