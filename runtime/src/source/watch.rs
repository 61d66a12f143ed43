//! Detects files that change while their source is open.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::content::ContentHash;
use super::error::{FileChange, SourceError};
use super::input::InputFile;
use super::split_location::SplitLocation;

/// Detects files whose content has changed since their source was opened.
///
/// A file whose size has changed is refused when it is opened. If only the modification time of a
/// file has changed, the content of the file is hashed again, once for each new time.
#[derive(Debug, Default)]
pub(crate) struct ContentWatch {
    /// For each file, by its index: the latest modification time at which the content of the file
    /// was found unchanged.
    unchanged: Mutex<HashMap<usize, Option<i128>>>,
}

impl ContentWatch {
    /// Checks that the file at `place` still has the content that it had when the source was
    /// opened. `identify` hashes the current content of the file.
    pub(crate) fn check(
        &self,
        place: &SplitLocation,
        identify: impl FnOnce(&InputFile) -> Result<ContentHash, SourceError>,
    ) -> Result<(), SourceError> {
        let modified = place.modified_now()?;
        if modified == place.modified {
            return Ok(());
        }
        let mut unchanged = { self.unchanged.lock() }.unwrap_or_else(PoisonError::into_inner);
        if unchanged.get(&place.file) == Some(&modified) {
            return Ok(());
        }
        match identify(&place.input) {
            Ok(content) if content == place.content => {}
            // A file that is damaged now was sound when the source was opened, so its content has
            // changed.
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
