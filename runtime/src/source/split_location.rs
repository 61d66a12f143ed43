//! Locations of splits, and functions that open their files.

use std::path::PathBuf;

use datafusion::common::{Result, internal_datafusion_err};

use super::content::ContentHash;
use super::error::{FileChange, SourceError};
use super::input::{Input, InputFile};
use super::listing::modified;
use super::manifest::{Manifest, Split};

/// The location of a split, and the state of its file when the source was opened.
#[derive(Debug, Clone)]
pub(crate) struct SplitLocation {
    /// Index of the file in the manifest.
    pub(crate) file: usize,
    /// Index of the split in the file's splits.
    pub(crate) split: usize,
    /// The file.
    pub(crate) input: InputFile,
    /// Path or URL of the file, as errors show it.
    pub(crate) path: PathBuf,
    /// Size of the file in bytes when the source was opened.
    pub(crate) size: u64,
    /// Modification time of the file when the source was opened, in nanoseconds since 1970; `None`
    /// when unknown.
    pub(crate) modified: Option<i128>,
    /// Content hash of the file when the source was opened.
    pub(crate) content: ContentHash,
    /// The row range and size of the split.
    pub(crate) rows: Split,
}

impl SplitLocation {
    /// Returns the location of the split `split` of the file `file`, both indices in `manifest`.
    /// `inputs` has the place of each file.
    pub(crate) fn find(
        manifest: &Manifest,
        inputs: &[InputFile],
        file: usize,
        split: usize,
    ) -> Result<Self> {
        let found = manifest.files.get(file).zip(inputs.get(file));
        let found = found.and_then(|(f, input)| Some((f, input, f.splits.get(split)?)));
        let (entry, input, rows) = found.ok_or_else(|| {
            internal_datafusion_err!("no split {split} of file {file} in the source")
        })?;
        Ok(Self {
            file,
            split,
            input: input.clone(),
            path: input.name(),
            size: entry.size,
            modified: entry.modified,
            content: entry.content,
            rows: rows.clone(),
        })
    }

    /// Opens the file of the split. It is an error if the file's size has changed since the source
    /// was opened.
    pub(crate) fn open(&self) -> std::result::Result<Input, SourceError> {
        let (file, now) = self.input.open()?;
        self.check_size(now)?;
        Ok(file)
    }

    /// Returns the time at which the file was last changed, in nanoseconds since 1970. It is an
    /// error if the file's size has changed since the source was opened. An object counts as
    /// unchanged, because its reads fail if it was written again.
    pub(crate) fn modified_now(&self) -> std::result::Result<Option<i128>, SourceError> {
        if self.input.is_object() {
            return Ok(self.modified);
        }
        let meta = std::fs::metadata(&self.path);
        let meta = meta.map_err(|error| SourceError::unreadable(&self.path, error))?;
        self.check_size(meta.len())?;
        Ok(modified(&meta))
    }

    fn check_size(&self, now: u64) -> std::result::Result<(), SourceError> {
        if now == self.size {
            return Ok(());
        }
        Err(SourceError::Changed {
            path: self.path.clone(),
            change: FileChange::Size {
                was: self.size,
                now,
            },
        })
    }
}
