//! The files that were found at a location, and the errors where none was.

use std::path::PathBuf;

use super::super::error::SourceError;
use super::walk::{Listed, Walked};
use super::wanted::{WantedFiles, archive_hint};

/// The files of a location.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The folder to which the relative paths of the files refer.
    pub(crate) root: PathBuf,
    /// Files, sorted by relative path (in the order of bytes).
    pub(crate) files: Vec<Listed>,
    /// Relative paths of the symbolic links to folders that were followed.
    pub(crate) links: Vec<String>,
}

/// Checks the name of a file that is itself the location.
pub(super) fn check_name(
    location: &str,
    name: &str,
    wanted: &WantedFiles,
) -> Result<(), SourceError> {
    if !wanted.strict || wanted.has_extension(name) {
        return Ok(());
    }
    Err(SourceError::Empty(format!(
        "'{location}' is no {} file: expected a folder, a glob, or a name that ends in {}{}",
        wanted.noun,
        wanted.extension_list(),
        archive_hint(name)
    )))
}

/// Returns the listing of the files that were found in a folder.
pub(super) fn folder_listing(
    location: &str,
    root: PathBuf,
    walked: Walked,
    wanted: &WantedFiles,
) -> Result<Listing, SourceError> {
    let WantedFiles { noun, .. } = wanted;
    let extensions = wanted.extension_list();
    only_wanted(root, walked, wanted, true, |other| match other {
        None => {
            format!("the folder '{location}' is empty: put {noun} files ({extensions}) into it")
        }
        Some(other) => format!(
            "no {noun} file in the folder '{location}': expected names that end in {extensions}, found for example '{other}'{}",
            archive_hint(other)
        ),
    })
}

/// Returns the listing of the files that match a glob.
pub(super) fn glob_listing(
    location: &str,
    root: PathBuf,
    walked: Walked,
    wanted: &WantedFiles,
) -> Result<Listing, SourceError> {
    let WantedFiles { noun, strict, .. } = wanted;
    only_wanted(root, walked, wanted, *strict, |other| match other {
        None => format!(
            "no file matches '{location}' (`*` and `?` stay within a folder, `**` crosses folders)"
        ),
        Some(other) => format!(
            "no {noun} file matches '{location}': expected names that end in {}, found for example '{other}'{}",
            wanted.extension_list(),
            archive_hint(other)
        ),
    })
}

/// Returns the listing of the files that were found, only those with a wanted extension if
/// `is_strict` is true. If there are none, `none` returns the error's text; it gets the name of
/// another file.
fn only_wanted(
    root: PathBuf,
    walked: Walked,
    wanted: &WantedFiles,
    is_strict: bool,
    none: impl FnOnce(Option<&str>) -> String,
) -> Result<Listing, SourceError> {
    let Walked { mut files, links } = walked;
    let other = files.first().map(|file| file.relative.clone());
    if is_strict {
        files.retain(|file| wanted.has_extension(&file.relative));
    }
    if files.is_empty() {
        return Err(SourceError::Empty(none(other.as_deref())));
    }
    Ok(Listing { root, files, links })
}
