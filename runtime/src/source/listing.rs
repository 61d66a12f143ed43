//! Finds the files of a location: a file, a folder or a glob of this machine.
//!
//! Symbolic links are followed, as data sets are often linked together. One that leads nowhere, or to a
//! folder around it, is an error: what lies behind it would be missing from the data. Relative paths
//! never leave the folder that was listed.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use glob::{MatchOptions, Pattern};
use url::Url;
use walkdir::WalkDir;

use super::error::SourceError;
use crate::task;

/// A file that a listing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Path relative to the listing's root, with `/` between parts.
    pub(crate) relative: String,
    /// Where to open it.
    pub(crate) absolute: PathBuf,
    /// Bytes.
    pub(crate) size: u64,
    /// When it was changed last, in nanoseconds since 1970, where known.
    pub(crate) modified: Option<i128>,
}

/// The files of a location.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The folder that relative paths start at.
    pub(crate) root: PathBuf,
    /// Ascending by relative path (order of bytes).
    pub(crate) files: Vec<Listed>,
    /// Relative paths of the symbolic links to folders.
    pub(crate) links: Vec<String>,
}

/// Which files of a folder or glob a format reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// What the files hold, for messages, as in "no image files".
    pub(crate) noun: &'static str,
    /// Extensions without the dot, in lower case. Folders yield files of these only.
    pub(crate) extensions: &'static [&'static str],
    /// True where globs and single files, too, must have one of these extensions.
    pub(crate) strict: bool,
}

impl Wanted {
    fn has_extension(&self, relative: &str) -> bool {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        name.rsplit_once('.').is_some_and(|(_, extension)| {
            self.extensions
                .iter()
                .any(|known| known.eq_ignore_ascii_case(extension))
        })
    }

    fn extension_list(&self) -> String {
        self.extensions
            .iter()
            .map(|e| format!(".{e}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The characters that make a part of a path a glob.
const GLOB_CHARACTERS: [char; 3] = ['*', '?', '['];

/// Lists the files of a location. Errors: nothing there, nothing that matches, no permission, a URL
/// of a scheme that is not supported.
pub(crate) async fn list(location: &str, wanted: &Wanted) -> Result<Listing, SourceError> {
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

fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}

fn missing(location: &str) -> SourceError {
    let base = std::env::current_dir().map_or_else(
        |_| "the working folder".to_owned(),
        |dir| format!("'{}'", dir.display()),
    );
    SourceError::Missing {
        location: location.to_owned(),
        base,
    }
}

/// The path that a location names: as it is, or that of a `file://` URL.
fn local_path(location: &str) -> Result<PathBuf, SourceError> {
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
    let Some((scheme, _)) = location.split_once("://") else {
        return Ok(PathBuf::from(location));
    };
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(SourceError::Scheme {
            location: location.to_owned(),
            scheme: scheme.to_owned(),
        });
    }
    // `?` would begin the query of a URL; here it belongs to a glob.
    let url = Url::parse(&location.replace('?', "%3F")).map_err(|e| bad(&e.to_string()))?;
    url.to_file_path()
        .map_err(|()| bad("a file:// URL names a file of this machine: file:///path"))
}

fn single_file(
    location: &str,
    path: &Path,
    meta: &std::fs::Metadata,
    wanted: &Wanted,
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

/// Nanoseconds from 1970 to a file's last change, where the system knows it.
pub(crate) fn modified(meta: &std::fs::Metadata) -> Option<i128> {
    let time = meta.modified().ok()?;
    Some(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    })
}

async fn list_folder(location: &str, root: &Path, wanted: &Wanted) -> Result<Listing, SourceError> {
    let Walked { mut files, links } = walk(root, Filter::Folder(*wanted)).await?;
    let other = files.first().map(|file| file.relative.clone());
    files.retain(|file| wanted.has_extension(&file.relative));
    if files.is_empty() {
        let Wanted { noun, .. } = wanted;
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

async fn list_glob(location: &str, path: &Path, wanted: &Wanted) -> Result<Listing, SourceError> {
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

/// Splits a glob into the folder that it is matched below, and the filter of paths relative to that folder.
fn split_glob(
    location: &str,
    path: &Path,
    wanted: &Wanted,
) -> Result<(PathBuf, Filter), SourceError> {
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
        Filter::Glob {
            whole,
            parts,
            strict,
        },
    ))
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    let named = path.parent().filter(|p| !p.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// The folder that a location names, and the files that a listing takes from it.
#[derive(Debug)]
pub(crate) struct Place {
    /// The folder that relative paths start at.
    pub(crate) root: PathBuf,
    wanted: Wanted,
    /// Absent where the location is a single file.
    filter: Option<Filter>,
}

impl Place {
    /// The place of a location, whose files are not listed for it.
    pub(crate) fn of(location: &str, wanted: &Wanted) -> Result<Self, SourceError> {
        let path = local_path(location)?;
        let (root, filter) = match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => (path, Some(Filter::Folder(*wanted))),
            Err(error) if is_absent(&error) && location.contains(GLOB_CHARACTERS) => {
                let (root, filter) = split_glob(location, &path, wanted)?;
                (root, Some(filter))
            }
            _ => (folder_of(&path).to_path_buf(), None),
        };
        let wanted = *wanted;
        Ok(Self {
            root,
            wanted,
            filter,
        })
    }

    /// True where the location is a file, not a folder or a glob.
    pub(crate) const fn is_single_file(&self) -> bool {
        self.filter.is_none()
    }

    /// True where a listing would take a file of this relative path.
    pub(crate) fn takes(&self, relative: &str) -> bool {
        let Some(filter) = &self.filter else {
            return false;
        };
        let needs_extension = self.wanted.strict || matches!(filter, Filter::Folder(_));
        filter.takes(relative) && (!needs_extension || self.wanted.has_extension(relative))
    }
}

/// Which entries below a folder a listing looks at.
#[derive(Debug, Clone)]
enum Filter {
    /// A folder: all but hidden entries.
    Folder(Wanted),
    /// A glob.
    Glob {
        whole: Pattern,
        /// Its parts between slashes.
        parts: Vec<Pattern>,
        strict: bool,
    },
}

const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

impl Filter {
    /// True where the entry may be listed, or be a folder that holds files to list.
    fn enters(&self, relative: &str) -> bool {
        match self {
            Self::Folder(wanted) => is_visible(relative, wanted.strict),
            Self::Glob { parts, strict, .. } => {
                (*strict || !has_part(relative, '_')) && may_match(parts, relative)
            }
        }
    }

    /// True where the entry is listed if it is a file.
    fn takes(&self, relative: &str) -> bool {
        match self {
            Self::Folder(_) => self.enters(relative),
            Self::Glob { whole, .. } => {
                self.enters(relative) && whole.matches_with(relative, MATCHING)
            }
        }
    }

    /// True where an entry that is no file stands in the place of a file of the format.
    fn misses(&self, relative: &str) -> bool {
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

/// True where no part of a path is hidden. Names such as `_SUCCESS` and `_temporary` are those of
/// writers, but cameras name photos `_DSC1234.jpg`.
fn is_visible(relative: &str, strict: bool) -> bool {
    !has_part(relative, '.') && (strict || !has_part(relative, '_'))
}

/// True where a path, or one below it, may match a glob.
fn may_match(parts: &[Pattern], relative: &str) -> bool {
    for (at, name) in relative.split('/').enumerate() {
        let Some(part) = parts.get(at) else {
            return false;
        };
        if part.as_str() == "**" {
            // `**` passes over hidden folders; a later part may name one.
            let names_hidden = parts[at..].iter().any(|p| p.as_str().starts_with('.'));
            return names_hidden || !relative.split('/').skip(at).any(|n| n.starts_with('.'));
        }
        if !part.matches_with(name, MATCHING) {
            return false;
        }
    }
    true
}

/// The files and links that a walk found.
#[derive(Debug)]
struct Walked {
    files: Vec<Listed>,
    /// Relative paths of the symbolic links to folders that were entered.
    links: Vec<String>,
}

/// The files below a folder that a filter takes, ascending by relative path. Errors: a folder that
/// cannot be read, a symbolic link that leads nowhere or to a folder around it, and an entry that is
/// named like a file to list and is none (a pipe, a socket, a device).
async fn walk(root: &Path, filter: Filter) -> Result<Walked, SourceError> {
    let folder = root.to_path_buf();
    let listed = task::blocking("listing files", move || walk_blocking(&folder, &filter)).await;
    listed.unwrap_or_else(|error| {
        Err(SourceError::Listing {
            path: root.to_path_buf(),
            cause: error.strip_backtrace(),
        })
    })
}

fn walk_blocking(root: &Path, filter: &Filter) -> Result<Walked, SourceError> {
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
            absolute: entry.into_path(),
        });
    }
    files.sort_unstable_by(|a, b| a.relative.cmp(&b.relative));
    Ok(Walked { files, links })
}

/// What is wrong with an entry that a walk cannot go on with.
fn unlisted(root: &Path, error: walkdir::Error) -> SourceError {
    let path = error.path().unwrap_or(root).to_path_buf();
    if let Some(around) = error.loop_ancestor() {
        return SourceError::Link {
            cause: format!("to '{}', a folder around it", around.display()),
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

/// Extensions of archives and of compressed files, which no format reads.
const ARCHIVES: &[&str] = &["tar", "tgz", "gz", "zip", "zst", "bz2", "xz", "7z", "rar"];

/// What to do about a file that is an archive; empty for others.
fn archive_hint(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if ARCHIVES.iter().any(|a| a.eq_ignore_ascii_case(extension)) {
        " (archives are not read: unpack them, and name the folder)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CSV: Wanted = Wanted {
        noun: "CSV",
        extensions: &["csv"],
        strict: false,
    };

    fn tree(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        dir
    }

    async fn names(location: &str) -> Result<Vec<String>, String> {
        list(location, &CSV)
            .await
            .map(|l| l.files.into_iter().map(|f| f.relative).collect())
            .map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn a_folder_is_listed_in_the_order_of_relative_paths() {
        let dir = tree(&[
            "b.csv",
            "a/z.CSV",
            "a b.csv",
            "a-1.csv",
            ".hidden.csv",
            "_SUCCESS",
            "_tmp/x.csv",
            "n.txt",
        ]);
        let found = names(dir.path().to_str().unwrap()).await.unwrap();
        assert_eq!(found, ["a b.csv", "a-1.csv", "a/z.CSV", "b.csv"]);
        let url = Url::from_directory_path(dir.path()).unwrap();
        assert_eq!(names(url.as_str()).await.unwrap(), found);
    }

    #[tokio::test]
    async fn absolute_paths_open_the_files_that_were_listed() {
        let dir = tree(&["ä ö%20#1/x y.csv", "p?q.csv", "k[1].csv"]);
        let found = list(dir.path().to_str().unwrap(), &CSV).await.unwrap();
        assert_eq!(found.files.len(), 3);
        for file in found.files {
            assert_eq!(fs::read_to_string(&file.absolute).unwrap(), file.relative);
            assert_eq!(file.size, file.relative.len() as u64);
        }
        // A file whose name looks like a glob is itself.
        let literal = format!("{}/k[1].csv", dir.path().display());
        assert_eq!(names(&literal).await.unwrap(), ["k[1].csv"]);
    }

    #[tokio::test]
    async fn globs_stay_within_a_folder_unless_doubled() {
        let dir = tree(&["a.csv", "b.txt", "x/a.csv", "x/y/a.csv", "x/.a.csv"]);
        let at = |glob: &str| format!("{}/{glob}", dir.path().display());
        assert_eq!(names(&at("*.csv")).await.unwrap(), ["a.csv"]);
        assert_eq!(names(&at("*")).await.unwrap(), ["a.csv", "b.txt"]);
        assert_eq!(
            names(&at("**/*.csv")).await.unwrap(),
            ["a.csv", "x/a.csv", "x/y/a.csv"]
        );
        assert_eq!(names(&at("x/?.csv")).await.unwrap(), ["a.csv"]);
        assert_eq!(names(&at("[xz]/*.csv")).await.unwrap(), ["x/a.csv"]);
        let url = format!("file://{}", at("x/?.csv"));
        assert_eq!(names(&url).await.unwrap(), ["a.csv"]);
        assert!(
            names(&at("*.json"))
                .await
                .unwrap_err()
                .contains("no file matches")
        );
        assert!(
            names(&at("none/*.csv"))
                .await
                .unwrap_err()
                .contains("no file or folder")
        );
        assert!(
            names(&at("a**b"))
                .await
                .unwrap_err()
                .contains("not a valid glob")
        );
    }

    #[tokio::test]
    async fn what_is_not_there_is_said_with_what_to_do() {
        let dir = tree(&["readme.md"]);
        let here = dir.path().to_str().unwrap();
        let error = names(here).await.unwrap_err();
        assert!(
            error.contains("end in .csv") && error.contains("readme.md"),
            "{error}"
        );
        let empty = tempfile::tempdir().unwrap();
        assert!(
            names(empty.path().to_str().unwrap())
                .await
                .unwrap_err()
                .contains("is empty")
        );
        assert!(
            names("no/such")
                .await
                .unwrap_err()
                .contains("no file or folder 'no/such'")
        );
        assert!(
            names("s3://bucket/x")
                .await
                .unwrap_err()
                .contains("not s3://")
        );
        assert!(names("").await.unwrap_err().contains("it is empty"));
        assert!(names("a\0b").await.unwrap_err().contains("NUL"));
    }

    #[tokio::test]
    async fn links_are_followed_and_those_that_lead_nowhere_are_errors() {
        let dir = tree(&["in/a.csv", "in/.cache/x"]);
        let other = tree(&["b.csv"]);
        let here = dir.path().join("in");
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, here.join(name)).unwrap();
        link(other.path(), "linked");
        // Hidden entries are not looked at, nor is what a glob does not match.
        link(Path::new("nowhere"), ".#lock");
        link(Path::new("nowhere"), ".cache/link");
        let list = here.to_str().unwrap();
        assert_eq!(names(list).await.unwrap(), ["a.csv", "linked/b.csv"]);

        link(Path::new("nowhere"), "broken.csv");
        let error = names(list).await.unwrap_err();
        assert!(
            error.contains("in/broken.csv' is a symbolic link to 'nowhere', which is not there"),
            "{error}"
        );
        assert_eq!(names(&format!("{list}/a*.csv")).await.unwrap(), ["a.csv"]);
        for glob in ["*.csv", "**/*.csv"] {
            let error = names(&format!("{list}/{glob}")).await.unwrap_err();
            assert!(error.contains("broken.csv' is a symbolic link"), "{error}");
        }
        let error = names(&format!("{list}/broken.csv")).await.unwrap_err();
        assert!(error.contains("is a symbolic link to 'nowhere'"), "{error}");
        fs::remove_file(here.join("broken.csv")).unwrap();

        // A link without an extension may stand for a folder of files.
        link(Path::new("gone"), "more");
        let error = names(list).await.unwrap_err();
        assert!(
            error.contains("in/more' is a symbolic link to 'gone'"),
            "{error}"
        );
        fs::remove_file(here.join("more")).unwrap();

        link(Path::new("self.csv"), "self.csv");
        assert!(
            names(list)
                .await
                .unwrap_err()
                .contains("in/self.csv' is a symbolic link")
        );
        fs::remove_file(here.join("self.csv")).unwrap();

        link(&here, "loop");
        let error = names(list).await.unwrap_err();
        assert!(
            error.contains("in/loop' is a symbolic link to")
                && error.contains("a folder around it"),
            "{error}"
        );
        assert_eq!(names(&format!("{list}/*.csv")).await.unwrap(), ["a.csv"]);
    }

    #[tokio::test]
    async fn what_is_named_like_a_file_and_is_none_is_an_error() {
        let dir = tree(&["in/a.csv"]);
        let here = dir.path().join("in");
        let socket = |name: &str| {
            drop(std::os::unix::net::UnixListener::bind(here.join(name)).unwrap());
        };
        socket("notes.sock");
        let list = here.to_str().unwrap();
        assert_eq!(names(list).await.unwrap(), ["a.csv"]);
        socket("pipe.csv");
        for location in [
            list.to_owned(),
            format!("{list}/*.csv"),
            format!("{list}/pipe.csv"),
        ] {
            let error = names(&location).await.unwrap_err();
            assert!(
                error.contains("in/pipe.csv' is neither a file nor a folder"),
                "{error}"
            );
        }
    }
}
