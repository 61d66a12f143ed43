//! Finds the files of a location on this machine: a file, a folder or a glob.
//!
//! Symbolic links are followed, because data sets are often assembled from links. A link whose
//! target does not exist, or is a folder that contains the link, is an error: the files that the
//! link stands for would be missing from the data. Relative paths never lead out of the listed
//! folder.

mod filter;
mod location;
mod place;
#[cfg(test)]
mod tests;
mod walk;
mod wanted;

use std::path::{Path, PathBuf};

use super::error::SourceError;
use filter::{EntryFilter, GLOB_CHARACTERS, split_glob};
use location::{folder_of, is_absent, local_path, missing};
pub(crate) use place::FilePlace;
pub(crate) use walk::{Listed, modified};
use walk::{Walked, walk};
pub(crate) use wanted::WantedFiles;
use wanted::archive_hint;

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

/// Lists the files of a location. It is an error if the location does not exist, no file matches, a
/// folder cannot be read, or the scheme of a URL is not supported.
pub(crate) async fn list(location: &str, wanted: &WantedFiles) -> Result<Listing, SourceError> {
    let path = local_path(location)?;
    match std::fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => list_folder(location, &path, wanted).await,
        Ok(meta) if meta.is_file() => single_file(location, &path, &meta, wanted),
        Ok(_) => Err(SourceError::NoFile { path }),
        Err(error) if is_absent(&error) && location.contains(GLOB_CHARACTERS) => {
            list_glob(location, &path, wanted).await
        }
        Err(error) if is_absent(&error) => match std::fs::read_link(&path) {
            Ok(target) => Err(SourceError::Link {
                cause: format!("to '{}', which is not there", target.display()),
                path,
            }),
            Err(_) => Err(missing(location)),
        },
        Err(error) => Err(SourceError::unreadable(&path, error)),
    }
}

fn single_file(
    location: &str,
    path: &Path,
    meta: &std::fs::Metadata,
    wanted: &WantedFiles,
) -> Result<Listing, SourceError> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| SourceError::Location {
            location: location.to_owned(),
            cause: "its file name is not UTF-8; rename the file".to_owned(),
        })?;
    if wanted.strict && !wanted.has_extension(name) {
        return Err(SourceError::Empty(format!(
            "'{location}' is no {} file: expected a folder, a glob, or a name that ends in {}{}",
            wanted.noun,
            wanted.extension_list(),
            archive_hint(name)
        )));
    }
    let root = folder_of(path);
    let file = Listed {
        relative: name.to_owned(),
        absolute: path.to_path_buf(),
        size: meta.len(),
        modified: modified(meta),
    };
    Ok(Listing {
        root: root.to_path_buf(),
        files: vec![file],
        links: Vec::new(),
    })
}

async fn list_folder(
    location: &str,
    root: &Path,
    wanted: &WantedFiles,
) -> Result<Listing, SourceError> {
    let Walked { mut files, links } = walk(root, EntryFilter::Folder(*wanted)).await?;
    let other = files.first().map(|file| file.relative.clone());
    files.retain(|file| wanted.has_extension(&file.relative));
    if files.is_empty() {
        let WantedFiles { noun, .. } = wanted;
        let extensions = wanted.extension_list();
        return Err(SourceError::Empty(match other {
            None => {
                format!("the folder '{location}' is empty: put {noun} files ({extensions}) into it")
            }
            Some(other) => format!(
                "no {noun} file in the folder '{location}': expected names that end in {extensions}, found for example '{other}'{}",
                archive_hint(&other)
            ),
        }));
    }
    Ok(Listing {
        root: root.to_path_buf(),
        files,
        links,
    })
}

async fn list_glob(
    location: &str,
    path: &Path,
    wanted: &WantedFiles,
) -> Result<Listing, SourceError> {
    let (root, filter) = split_glob(location, path, wanted)?;
    match std::fs::metadata(&root) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(missing(location)),
        Err(error) if is_absent(&error) => return Err(missing(&root.to_string_lossy())),
        Err(error) => return Err(SourceError::unreadable(&root, error)),
    }
    let Walked { mut files, links } = walk(&root, filter).await?;
    let other = files.first().map(|file| file.relative.clone());
    if wanted.strict {
        files.retain(|file| wanted.has_extension(&file.relative));
    }
    if files.is_empty() {
        return Err(SourceError::Empty(match other {
            Some(other) => format!(
                "no {} file matches '{location}': expected names that end in {}, found for example '{other}'{}",
                wanted.noun,
                wanted.extension_list(),
                archive_hint(&other)
            ),
            None => format!(
                "no file matches '{location}' (`*` and `?` stay within a folder, `**` crosses folders)"
            ),
        }));
    }
    Ok(Listing { root, files, links })
}
