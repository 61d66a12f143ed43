//! The entries of a folder that a listing visits: visible ones, or those that match a glob.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::super::error::SourceError;
use super::wanted::WantedFiles;

/// Characters that make a part of a path a pattern.
pub(super) const GLOB_CHARACTERS: [char; 3] = ['*', '?', '['];

/// The entries below a folder that a listing visits.
#[derive(Debug, Clone)]
pub(super) enum EntryFilter {
    /// A folder: all entries except hidden ones.
    Folder(WantedFiles),
    /// A glob.
    Glob {
        whole: Pattern,
        /// The parts of the pattern between slashes.
        parts: Vec<Pattern>,
        strict: bool,
    },
}

const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

impl EntryFilter {
    /// True when a walk visits the entry: it may be listed, or be a folder that holds files to
    /// list.
    pub(super) fn enters(&self, relative: &str) -> bool {
        match self {
            Self::Folder(wanted) => is_visible(relative, wanted.strict),
            Self::Glob { parts, strict, .. } => {
                (*strict || !has_part(relative, '_')) && may_match(parts, relative)
            }
        }
    }

    /// True when the entry is listed, provided that it is a file.
    pub(super) fn takes(&self, relative: &str) -> bool {
        match self {
            Self::Folder(_) => self.enters(relative),
            Self::Glob { whole, .. } => {
                self.enters(relative) && whole.matches_with(relative, MATCHING)
            }
        }
    }

    /// True when the entry, which is not a file, has the name of a file to list; ignoring it would
    /// lose data.
    pub(super) fn misses(&self, relative: &str) -> bool {
        self.takes(relative)
            && match self {
                Self::Folder(wanted) => wanted.has_extension(relative),
                Self::Glob { .. } => true,
            }
    }
}

fn has_part(relative: &str, first: char) -> bool {
    relative.split('/').any(|part| part.starts_with(first))
}

/// True when no part of the path is hidden. A leading `_` hides only if `strict` is true: writers
/// use names such as `_SUCCESS` and `_temporary`, but cameras name photos `_DSC1234.jpg`.
fn is_visible(relative: &str, strict: bool) -> bool {
    !has_part(relative, '.') && (strict || !has_part(relative, '_'))
}

/// True when the path, or a path below it, may match the glob.
fn may_match(parts: &[Pattern], relative: &str) -> bool {
    for (at, name) in relative.split('/').enumerate() {
        let Some(part) = parts.get(at) else {
            return false;
        };
        if part.as_str() == "**" {
            // `**` does not enter hidden folders, unless a later part of the glob names one.
            let names_hidden = parts[at..].iter().any(|p| p.as_str().starts_with('.'));
            return names_hidden || !relative.split('/').skip(at).any(|n| n.starts_with('.'));
        }
        if !part.matches_with(name, MATCHING) {
            return false;
        }
    }
    true
}

/// Splits a glob into the folder in which matching starts, and the filter of paths relative to that
/// folder.
pub(super) fn split_glob(
    location: &str,
    path: &Path,
    wanted: &WantedFiles,
) -> Result<(PathBuf, EntryFilter), SourceError> {
    let bad = |cause: String| SourceError::Location {
        location: location.to_owned(),
        cause,
    };
    let text = path
        .to_str()
        .ok_or_else(|| bad("a glob has to be UTF-8".to_owned()))?;
    let parts: Vec<&str> = text.split('/').collect();
    let first = parts
        .iter()
        .position(|part| part.contains(GLOB_CHARACTERS))
        .unwrap_or(0);
    let root = match parts[..first].join("/") {
        base if base.is_empty() && text.starts_with('/') => PathBuf::from("/"),
        base if base.is_empty() => PathBuf::from("."),
        base => PathBuf::from(base),
    };
    let invalid = |e| bad(format!("it is not a valid glob: {e}"));
    let whole = Pattern::new(&parts[first..].join("/")).map_err(invalid)?;
    let parts = parts[first..]
        .iter()
        .map(|part| Pattern::new(part))
        .collect::<Result<Vec<_>, _>>()
        .map_err(invalid)?;
    let strict = wanted.strict;
    Ok((
        root,
        EntryFilter::Glob {
            whole,
            parts,
            strict,
        },
    ))
}
