//! Finds the files of a location: a file, a folder or a glob of this machine.
//!
//! Folders are walked through `object_store`, following symbolic links (data sets are often linked
//! together); a loop of links is an error. Relative paths never leave the folder that was listed.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use futures::TryStreamExt;
use glob::{MatchOptions, Pattern};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use url::Url;

use super::error::SourceError;

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
}

/// Which files of a folder or glob a format reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// What the files hold, for messages, as in "no image files".
    pub(crate) noun: &'static str,
    /// Extensions without the dot, in lower case. Folders yield files of these only.
    pub(crate) extensions: &'static [&'static str],
    /// Whether a glob yields files of these extensions only, too.
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

    /// Whether a file that a glob matches is data.
    fn is_of_glob(&self, relative: &str) -> bool {
        if self.strict {
            self.has_extension(relative)
        } else {
            relative.split('/').all(|part| !part.starts_with('_'))
        }
    }

    /// Whether a file of a folder counts as data: hidden ones do not.
    fn sees(&self, relative: &str) -> bool {
        relative.split('/').all(|part| !part.starts_with('.'))
            // Names such as `_SUCCESS` and `_temporary` are those of writers, but cameras name photos
            // `_DSC1234.jpg`.
            && (self.strict || relative.split('/').all(|part| !part.starts_with('_')))
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

const GLOB_OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Lists the files of a location. Errors: nothing there, nothing that matches, no permission, a URL
/// of a scheme that is not supported.
pub(crate) async fn list(location: &str, wanted: &Wanted) -> Result<Listing, SourceError> {
    let path = local_path(location)?;
    match std::fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => list_folder(location, &path, wanted).await,
        Ok(meta) if meta.is_file() => single_file(location, &path, &meta),
        Ok(_) => Err(SourceError::Location {
            location: location.to_owned(),
            cause: "it is neither a file nor a folder".to_owned(),
        }),
        Err(error) if is_absent(&error) && location.contains(GLOB_CHARACTERS) => {
            list_glob(location, &path, wanted).await
        }
        Err(error) if is_absent(&error) => Err(missing(location)),
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
) -> Result<Listing, SourceError> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| SourceError::Location {
            location: location.to_owned(),
            cause: "its file name is not UTF-8; rename the file".to_owned(),
        })?;
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
    let all = walk(root).await?;
    let visible = |relative: &str| wanted.sees(relative);
    let other = all
        .iter()
        .find(|file| visible(&file.relative))
        .map(|f| f.relative.clone());
    let files: Vec<_> = all
        .into_iter()
        .filter(|file| visible(&file.relative) && wanted.has_extension(&file.relative))
        .collect();
    if files.is_empty() {
        let Wanted { noun, .. } = wanted;
        let extensions = wanted.extension_list();
        return Err(SourceError::Empty(match other {
            None => {
                format!("the folder '{location}' is empty: put {noun} files ({extensions}) into it")
            }
            Some(other) => format!(
                "no {noun} file in the folder '{location}': expected names that end in {extensions}, found for example '{other}'"
            ),
        }));
    }
    Ok(Listing {
        root: root.to_path_buf(),
        files,
    })
}

async fn list_glob(location: &str, path: &Path, wanted: &Wanted) -> Result<Listing, SourceError> {
    let (root, pattern) = split_glob(location, path)?;
    match std::fs::metadata(&root) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(missing(location)),
        Err(error) if is_absent(&error) => return Err(missing(&root.to_string_lossy())),
        Err(error) => return Err(SourceError::unreadable(&root, error)),
    }
    let mut files = walk(&root).await?;
    files.retain(|file| pattern.matches_with(&file.relative, GLOB_OPTIONS));
    let other = files.first().map(|file| file.relative.clone());
    files.retain(|file| wanted.is_of_glob(&file.relative));
    if files.is_empty() {
        return Err(SourceError::Empty(match other {
            Some(other) => format!(
                "no {} file matches '{location}': expected names that end in {}, found for example '{other}'",
                wanted.noun,
                wanted.extension_list(),
            ),
            None => format!(
                "no file matches '{location}' (`*` and `?` stay within a folder, `**` crosses folders)"
            ),
        }));
    }
    Ok(Listing { root, files })
}

/// The folder that a glob is matched below, and the pattern of the paths relative to it.
fn split_glob(location: &str, path: &Path) -> Result<(PathBuf, Pattern), SourceError> {
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
    let pattern = Pattern::new(&parts[first..].join("/"))
        .map_err(|e| bad(format!("it is not a valid glob: {e}")))?;
    Ok((root, pattern))
}

/// What a location names, without its files being listed.
#[derive(Debug)]
pub(crate) enum Place {
    /// A file in its folder.
    File { root: PathBuf },
    /// A folder.
    Folder { root: PathBuf },
    /// The files below a folder whose relative paths match.
    Glob { root: PathBuf, pattern: Pattern },
}

impl Place {
    /// The place of a location that was listed.
    pub(crate) fn of(location: &str) -> Result<Self, SourceError> {
        let path = local_path(location)?;
        Ok(match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => Self::Folder { root: path },
            Err(error) if is_absent(&error) && location.contains(GLOB_CHARACTERS) => {
                let (root, pattern) = split_glob(location, &path)?;
                Self::Glob { root, pattern }
            }
            _ => Self::File {
                root: folder_of(&path).to_path_buf(),
            },
        })
    }

    /// The folder that relative paths start at.
    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::File { root } | Self::Folder { root } | Self::Glob { root, .. } => root,
        }
    }

    /// Whether a listing would take in a file of this relative path.
    pub(crate) fn takes(&self, wanted: &Wanted, relative: &str) -> bool {
        match self {
            Self::File { .. } => false,
            Self::Folder { .. } => wanted.sees(relative) && wanted.has_extension(relative),
            Self::Glob { pattern, .. } => {
                pattern.matches_with(relative, GLOB_OPTIONS) && wanted.is_of_glob(relative)
            }
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    let named = path.parent().filter(|p| !p.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// Every file below a folder, ascending by relative path.
async fn walk(root: &Path) -> Result<Vec<Listed>, SourceError> {
    let failed = |cause: String| SourceError::Listing {
        path: root.to_path_buf(),
        cause,
    };
    // The store would only say that the root cannot be made canonical.
    std::fs::read_dir(root).map_err(|error| SourceError::unreadable(root, error))?;
    let store = LocalFileSystem::new_with_prefix(root).map_err(|e| failed(innermost(&e)))?;
    let found: Vec<_> = store
        .list(None)
        .try_collect()
        .await
        .map_err(|e| failed(innermost(&e)))?;
    let mut files = found
        .into_iter()
        .map(|meta| {
            let absolute = store
                .path_to_filesystem(&meta.location)
                .map_err(|e| failed(innermost(&e)))?;
            Ok(Listed {
                relative: String::from(meta.location),
                absolute,
                size: meta.size,
                modified: meta.last_modified.timestamp_nanos_opt().map(i128::from),
            })
        })
        .collect::<Result<Vec<_>, SourceError>>()?;
    files.sort_unstable_by(|a, b| a.relative.cmp(&b.relative));
    Ok(files)
}

/// The message of the error at the root of a chain; the outer ones repeat the store's name.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
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

    #[cfg(unix)]
    #[tokio::test]
    async fn links_are_followed_and_loops_refused() {
        let dir = tree(&["in/a.csv"]);
        let other = tree(&["b.csv"]);
        std::os::unix::fs::symlink(other.path(), dir.path().join("in/linked")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("in/broken.csv")).unwrap();
        let here = dir.path().join("in");
        assert_eq!(
            names(here.to_str().unwrap()).await.unwrap(),
            ["a.csv", "linked/b.csv"]
        );
        std::os::unix::fs::symlink(&here, here.join("loop")).unwrap();
        assert!(
            names(here.to_str().unwrap())
                .await
                .unwrap_err()
                .contains("cannot list")
        );
    }
}
