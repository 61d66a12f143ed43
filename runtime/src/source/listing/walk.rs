//! Walks through a folder to list its files.

use std::path::Path;
use std::time::UNIX_EPOCH;

use walkdir::WalkDir;

use super::super::error::SourceError;
use super::super::input::InputFile;
use super::filter::EntryFilter;
use crate::task;

/// A file that a listing found.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    /// Path relative to the listing's root, with `/` as separator.
    pub(crate) relative: String,
    /// The file, which can be opened.
    pub(crate) file: InputFile,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Time of the last change in nanoseconds since 1970; `None` when unknown.
    pub(crate) modified: Option<i128>,
}

/// Returns the time of a file's last change in nanoseconds since 1970; `None` when the system does
/// not provide this time.
pub(crate) fn modified(meta: &std::fs::Metadata) -> Option<i128> {
    let time = meta.modified().ok()?;
    Some(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    })
}

/// The files and links that a walk found.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) files: Vec<Listed>,
    /// Relative paths of the symbolic links to folders that the walk followed.
    pub(super) links: Vec<String>,
}

/// Walks through the folder `root` and returns the files that `filter` takes, sorted by relative
/// path. It is an error if a folder cannot be read, if the target of a symbolic link does not exist
/// or is a folder that contains the link, or if a pipe, a socket or a device has the name of a file
/// to list.
pub(super) async fn walk(root: &Path, filter: EntryFilter) -> Result<Walked, SourceError> {
    let folder = root.to_path_buf();
    let listed = task::blocking("listing files", move || walk_blocking(&folder, &filter)).await;
    listed.unwrap_or_else(|error| {
        Err(SourceError::Listing {
            path: root.to_path_buf(),
            cause: error.strip_backtrace(),
        })
    })
}

pub(super) fn walk_blocking(root: &Path, filter: &EntryFilter) -> Result<Walked, SourceError> {
    let relative = |path: &Path| -> String {
        let parts = path.strip_prefix(root).unwrap_or(path).components();
        let parts: Vec<_> = parts
            .map(|part| part.as_os_str().to_string_lossy())
            .collect();
        parts.join("/")
    };
    let (mut files, mut links) = (Vec::new(), Vec::new());
    let entries = WalkDir::new(root).min_depth(1).follow_links(true);
    let entered = entries
        .into_iter()
        .filter_entry(|entry| filter.enters(&relative(entry.path())));
    for entry in entered {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let path = error.path().unwrap_or(root);
                if path == root || filter.enters(&relative(path)) {
                    return Err(unlisted(root, error));
                }
                continue;
            }
        };
        let relative = relative(entry.path());
        let kind = entry.file_type();
        if kind.is_dir() {
            if entry.path_is_symlink() {
                links.push(relative);
            }
            continue;
        }
        if !filter.takes(&relative) {
            continue;
        }
        if !kind.is_file() {
            if filter.misses(&relative) {
                return Err(SourceError::NoFile {
                    path: entry.into_path(),
                });
            }
            continue;
        }
        if entry.path().to_str().is_none() {
            return Err(SourceError::Listing {
                path: entry.into_path(),
                cause: "its name is not UTF-8; rename it".to_owned(),
            });
        }
        let meta = entry.metadata().map_err(|error| unlisted(root, error))?;
        files.push(Listed {
            relative,
            size: meta.len(),
            modified: modified(&meta),
            file: InputFile::Local(entry.into_path()),
        });
    }
    files.sort_unstable_by(|a, b| a.relative.cmp(&b.relative));
    Ok(Walked { files, links })
}

/// Returns the error for the entry at which `error` stopped a walk through `root`.
fn unlisted(root: &Path, error: walkdir::Error) -> SourceError {
    let path = error.path().unwrap_or(root).to_path_buf();
    if let Some(around) = error.loop_ancestor() {
        return SourceError::Link {
            cause: format!("to '{}', a folder that contains the link", around.display()),
            path,
        };
    }
    if let Ok(target) = std::fs::read_link(&path)
        && std::fs::metadata(&path).is_err()
    {
        return SourceError::Link {
            cause: format!("to '{}', which is not there", target.display()),
            path,
        };
    }
    match error.into_io_error() {
        Some(source) => SourceError::Unreadable { path, source },
        None => SourceError::Listing {
            path,
            cause: "the walk ended".to_owned(),
        },
    }
}
