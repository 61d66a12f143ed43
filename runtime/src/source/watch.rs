//! Detects files that change while their source is open.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::content::ContentHash;
use super::error::{FileChange, SourceError};
use super::split_location::SplitLocation;

/// Notices files whose content has changed since their source was opened.
///
/// A file of another size is refused when it is opened. The content of a file of the same size is
/// hashed again each time its time of change differs.
#[derive(Debug, Default)]
pub(crate) struct ContentWatch {
    /// Time of the last change of each file, by index, with which its content was found unchanged.
    unchanged: Mutex<HashMap<usize, Option<i128>>>,
}

impl ContentWatch {
    /// Checks that a file is the one that the source opened; `identify` hashes the file as it is
    /// now.
    pub(crate) fn check(
        &self,
        place: &SplitLocation,
        identify: impl FnOnce(&Path) -> Result<ContentHash, SourceError>,
    ) -> Result<(), SourceError> {
        let modified = place.modified_now()?;
        if modified == place.modified {
            return Ok(());
        }
        let mut unchanged = { self.unchanged.lock() }.unwrap_or_else(PoisonError::into_inner);
        if unchanged.get(&place.file) == Some(&modified) {
            return Ok(());
        }
        match identify(&place.path) {
            Ok(content) if content == place.content => {}
            // A file that is damaged now was sound when the source was opened: it was replaced.
            Ok(_) | Err(SourceError::Damaged { .. }) => {
                return Err(SourceError::Changed {
                    path: place.path.clone(),
                    change: FileChange::Content,
                });
            }
            Err(error) => return Err(error),
        }
        unchanged.insert(place.file, modified);
        Ok(())
    }
}
