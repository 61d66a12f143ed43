//! Lists the objects of a location in a store: an object, a prefix or a glob.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::path::Path as ObjectPath;

use super::super::error::SourceError;
use super::super::input::InputFile;
use super::filter::{EntryFilter, GLOB_CHARACTERS, split_glob};
use super::found::{Listing, check_name, folder_listing, glob_listing};
use super::walk::{Listed, Walked};
use super::wanted::WantedFiles;
use crate::objects::{self, Object, ObjectStores, ObjectUrl, Store};

/// Lists the objects of a location. That is a single request for an object, and a single listing
/// for a prefix or a glob, except that a name which may be either is tried as both.
pub(super) async fn list(
    location: &str,
    wanted: &WantedFiles,
    stores: &ObjectStores,
) -> Result<Listing, SourceError> {
    let url = ObjectUrl::parse(location)?;
    let store = stores.get(&url)?;
    let has_pattern = url.path.as_ref().contains(GLOB_CHARACTERS);
    if url.is_web() {
        if has_pattern || url.is_folder || url.path.as_ref().is_empty() {
            return Err(SourceError::Location {
                location: location.to_owned(),
                cause: "a web server has no listings; name one file".to_owned(),
            });
        }
        let found = objects::head(&store, &url.path).await?;
        return found.map_or_else(
            || Err(none(location)),
            |object| single(location, object, wanted),
        );
    }
    if has_pattern {
        return list_glob(location, &url, &store, wanted).await;
    }
    // The name says which request is more likely to find something.
    let is_file = !url.is_folder && wanted.has_extension(url.path.as_ref());
    if is_file && let Some(object) = objects::head(&store, &url.path).await? {
        return single(location, object, wanted);
    }
    let listed = objects::list(&store, &url.path).await?;
    if listed.is_empty() {
        let may_be_file = !is_file && !url.is_folder && !url.path.as_ref().is_empty();
        if may_be_file && let Some(object) = objects::head(&store, &url.path).await? {
            return single(location, object, wanted);
        }
        return Err(none(location));
    }
    let walked = taken(listed, &url.path, &EntryFilter::Folder(*wanted));
    let root = PathBuf::from(format!("{}/{}", url.root, url.path));
    folder_listing(location, root, walked, wanted)
}

fn none(location: &str) -> SourceError {
    SourceError::Empty(format!(
        "no object '{location}', and none below it: check the path"
    ))
}

fn single(location: &str, object: Object, wanted: &WantedFiles) -> Result<Listing, SourceError> {
    let url = object.url();
    let (folder, name) = url.rsplit_once('/').unwrap_or(("", &url));
    check_name(location, name, wanted)?;
    Ok(Listing {
        root: PathBuf::from(folder),
        files: vec![listed(name.to_owned(), object)],
        links: Vec::new(),
    })
}

async fn list_glob(
    location: &str,
    url: &ObjectUrl,
    store: &Store,
    wanted: &WantedFiles,
) -> Result<Listing, SourceError> {
    let (folder, filter) = split_glob(location, Path::new(url.path.as_ref()), wanted)?;
    let folder = folder.to_str().filter(|folder| *folder != ".");
    let folder = ObjectPath::parse(folder.unwrap_or_default());
    let folder = folder.map_err(|error| SourceError::Location {
        location: location.to_owned(),
        cause: error.to_string(),
    })?;
    let listed = objects::list(store, &folder).await?;
    let root = PathBuf::from(format!("{}/{folder}", url.root));
    glob_listing(location, root, taken(listed, &folder, &filter), wanted)
}

/// Returns the objects below `folder` that `filter` takes, in the order of their relative paths.
fn taken(objects: Vec<Object>, folder: &ObjectPath, filter: &EntryFilter) -> Walked {
    let skip = match folder.as_ref().len() {
        0 => 0,
        length => length + 1,
    };
    let files = objects.into_iter().filter_map(|object| {
        let relative = object.path().get(skip..).unwrap_or_default().to_owned();
        let is_taken = !relative.is_empty() && filter.takes(&relative);
        is_taken.then(|| listed(relative, object))
    });
    Walked {
        files: files.collect(),
        links: Vec::new(),
    }
}

fn listed(relative: String, object: Object) -> Listed {
    Listed {
        relative,
        size: object.size(),
        modified: object.modified(),
        file: InputFile::Object(Arc::new(object)),
    }
}
