//! Finds the files of a location: a file, a folder or a glob, on this machine or in an object store.
//!
//! Symbolic links are followed, because data sets are often assembled from links. A link whose
//! target does not exist, or is a folder that contains the link, is an error: the files that the
//! link stands for would be missing from the data. Relative paths never lead out of the listed
//! folder.

mod filter;
mod found;
mod location;
mod objects;
mod place;
#[cfg(test)]
mod tests;
mod walk;
mod wanted;

use std::path::Path;

use super::error::SourceError;
use super::input::InputFile;
use crate::objects::{ObjectStores, is_object_url};
use filter::{EntryFilter, GLOB_CHARACTERS, split_glob};
pub(crate) use found::Listing;
use found::{check_name, folder_listing, glob_listing};
use location::{folder_of, is_absent, local_path, missing};
pub(crate) use place::FilePlace;
use walk::walk;
pub(crate) use walk::{Listed, modified};
pub(crate) use wanted::WantedFiles;

/// Lists the files of a location. It is an error if the location does not exist, no file matches, a
/// folder or store cannot be read, or the scheme of a URL is not supported.
pub(crate) async fn list(
    location: &str,
    wanted: &WantedFiles,
    stores: &ObjectStores,
) -> Result<Listing, SourceError> {
    if is_object_url(location) {
        return objects::list(location, wanted, stores).await;
    }
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
    check_name(location, name, wanted)?;
    let root = folder_of(path);
    let file = Listed {
        relative: name.to_owned(),
        file: InputFile::Local(path.to_path_buf()),
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
    let walked = walk(root, EntryFilter::Folder(*wanted)).await?;
    folder_listing(location, root.to_path_buf(), walked, wanted)
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
    let walked = walk(&root, filter).await?;
    glob_listing(location, root, walked, wanted)
}
