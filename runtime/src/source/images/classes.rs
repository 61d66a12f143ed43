//! Classes of the images in a folder, and the labels of the classes.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::error::SourceError;
use super::super::listing::Listing;

pub(super) fn pinned_classes(text: &str) -> Result<Vec<String>, SourceError> {
    let classes: Vec<String> = text.split(',').map(|c| c.trim().to_owned()).collect();
    let mut sorted = classes.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1])
        || sorted.first().is_some_and(String::is_empty)
    {
        return Err(SourceError::Option(format!(
            "option 'classes' of IMAGEFOLDER must be different names separated by commas, not '{text}'"
        )));
    }
    Ok(classes)
}

/// Returns the class of each file: the first folder of its relative path, or the name of the listed
/// folder when all images lie directly in that folder.
pub(super) fn classes_of_files(
    listing: &Listing,
    location: &str,
) -> Result<Vec<String>, SourceError> {
    let flat = listing
        .files
        .iter()
        .find(|file| !file.relative.contains('/'));
    let nested = listing
        .files
        .iter()
        .find(|file| file.relative.contains('/'));
    match (flat, nested) {
        (Some(flat), Some(nested)) => Err(SourceError::Schema(format!(
            "'{location}' has images both directly in it ('{}') and in folders ('{}'): an image folder has a folder for each class, or no folders",
            flat.relative, nested.relative
        ))),
        (Some(_), None) => Ok(vec![folder_name(&listing.root); listing.files.len()]),
        _ => Ok(listing
            .files
            .iter()
            .map(|file| {
                file.relative
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()),
    }
}

/// Returns the last part of the path `root` as it is written. For a path without a last name, such
/// as `.` or `..`, returns the real name of the folder.
fn folder_name(root: &Path) -> String {
    let written = root
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    written
        .or_else(|| {
            let real = std::fs::canonicalize(root).ok()?;
            Some(real.file_name()?.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "images".to_owned())
}

pub(super) fn labels_of(
    found: &[String],
    classes: &[String],
    location: &str,
) -> Result<Vec<i32>, SourceError> {
    let mut by_name = BTreeMap::new();
    for (label, class) in (0i32..).zip(classes) {
        by_name.insert(class.as_str(), label);
    }
    found
        .iter()
        .map(|class| {
            by_name.get(class.as_str()).copied().ok_or_else(|| {
                SourceError::Option(format!(
                    "'{location}' has the class '{class}', which the option 'classes' ('{}') does not name",
                    classes.join(",")
                ))
            })
        })
        .collect()
}
