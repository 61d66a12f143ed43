//! Resolves a location to a folder and a filter, without listing the folder.

use std::path::PathBuf;

use super::super::error::SourceError;
use super::filter::{EntryFilter, GLOB_CHARACTERS, split_glob};
use super::location::{folder_of, is_absent, local_path};
use super::wanted::WantedFiles;

/// The folder of a location, and the filter of the files that a listing takes from that folder.
#[derive(Debug)]
pub(crate) struct FilePlace {
    /// The folder to which the relative paths of the files refer.
    pub(crate) root: PathBuf,
    wanted: WantedFiles,
    /// `None` when the location is a single file.
    filter: Option<EntryFilter>,
}

impl FilePlace {
    /// Resolves a location without listing its files.
    pub(crate) fn of(location: &str, wanted: &WantedFiles) -> Result<Self, SourceError> {
        let path = local_path(location)?;
        let (root, filter) = match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => (path, Some(EntryFilter::Folder(*wanted))),
            Err(error) if is_absent(&error) && location.contains(GLOB_CHARACTERS) => {
                let (root, filter) = split_glob(location, &path, wanted)?;
                (root, Some(filter))
            }
            _ => (folder_of(&path).to_path_buf(), None),
        };
        let wanted = *wanted;
        Ok(Self {
            root,
            wanted,
            filter,
        })
    }

    /// True when the location is a file, not a folder or a glob.
    pub(crate) const fn is_single_file(&self) -> bool {
        self.filter.is_none()
    }

    /// True when a listing would take a file with this relative path.
    pub(crate) fn takes(&self, relative: &str) -> bool {
        let Some(filter) = &self.filter else {
            return false;
        };
        let needs_extension = self.wanted.strict || matches!(filter, EntryFilter::Folder(_));
        filter.takes(relative) && (!needs_extension || self.wanted.has_extension(relative))
    }
}
