//! The filter of a listing: the visible entries of a folder, or the entries that match a glob.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::super::error::SourceError;
use super::wanted::WantedFiles;

/// Characters that make a part of a path (a name between slashes) a pattern.
pub(super) const GLOB_CHARACTERS: [char; 3] = ['*', '?', '['];

/// Filter that selects the entries of a folder for a listing to visit.
#[derive(Debug, Clone)]
pub(super) enum EntryFilter {
    /// For a folder: all entries except hidden entries.
    Folder(WantedFiles),
    /// For a glob: the entries whose relative paths match.
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
    /// True when a walk visits the entry with the path `relative`: a file that may be listed, or a
    /// folder that may contain such files.
    pub(super) fn enters(&self, relative: &str) -> bool {
        match self {
            Self::Folder(wanted) => is_visible(relative, wanted.strict),
            Self::Glob { parts, strict, .. } => {
                (*strict || !has_part(relative, '_')) && may_match(parts, relative)
            }
        }
    }

    /// True when the entry with the path `relative` is listed, provided that the entry is a file.
    /// Extensions are checked elsewhere.
    pub(super) fn takes(&self, relative: &str) -> bool {
        match self {
            Self::Folder(_) => self.enters(relative),
            Self::Glob { whole, .. } => {
                self.enters(relative) && whole.matches_with(relative, MATCHING)
            }
        }
    }

    /// True when an entry that is not a file has the name of a file to list. Ignoring such an entry
    /// could lose data.
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

/// True when no part of the path is hidden. A leading `.` always hides, a leading `_` only if
/// `strict` is false: writers of tables use names such as `_SUCCESS` and `_temporary`, but cameras
/// name photos `_DSC1234.jpg`.
fn is_visible(relative: &str, strict: bool) -> bool {
    !has_part(relative, '.') && (strict || !has_part(relative, '_'))
}

/// True when the path `relative`, or a path below it, may match the glob with these parts.
fn may_match(parts: &[Pattern], relative: &str) -> bool {
    for (at, name) in relative.split('/').enumerate() {
        let Some(part) = parts.get(at) else {
            return false;
        };
        if part.as_str() == "**" {
            // `**` does not enter hidden folders, unless a later part of the glob begins with a
            // dot.
            let names_hidden = parts[at..].iter().any(|p| p.as_str().starts_with('.'));
            return names_hidden || !relative.split('/').skip(at).any(|n| n.starts_with('.'));
        }
        if !part.matches_with(name, MATCHING) {
            return false;
        }
    }
    true
}

/// Splits a glob into the folder before its first pattern, and a filter of the paths relative to
/// that folder.
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
