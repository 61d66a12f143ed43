//! Resolves locations as users write them: paths and `file://` URLs.

use std::path::{Path, PathBuf};

use url::Url;

use super::super::error::SourceError;

pub(super) fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}

pub(super) fn missing(location: &str) -> SourceError {
    let base = std::env::current_dir().map_or_else(
        |_| "the working folder".to_owned(),
        |dir| format!("'{}'", dir.display()),
    );
    SourceError::Missing {
        location: location.to_owned(),
        base,
    }
}

/// Returns the path that a location names: the location itself, or the path of a `file://` URL.
pub(super) fn local_path(location: &str) -> Result<PathBuf, SourceError> {
    let bad = |cause: &str| SourceError::Location {
        location: location.to_owned(),
        cause: cause.to_owned(),
    };
    if location.is_empty() {
        return Err(bad(
            "it is empty; name a file, a folder or a glob such as 'data/*.parquet'",
        ));
    }
    if location.contains('\0') {
        return Err(bad("it holds a NUL character"));
    }
    if !location.contains("://") {
        return Ok(PathBuf::from(location));
    }
    // In a URL, `?` would begin the query, but in a location `?` is part of a glob.
    let url = Url::parse(&location.replace('?', "%3F")).map_err(|e| bad(&e.to_string()))?;
    url.to_file_path()
        .map_err(|()| bad("a file:// URL names a file of this machine: file:///path"))
}

/// Returns the folder that contains a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    let named = path.parent().filter(|p| !p.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}
