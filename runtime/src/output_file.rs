//! Output files that appear under their name only when they are complete.
//!
//! Bytes go to a hidden temporary file beside the target. [`OutputFile::commit`] syncs the
//! temporary file to disk and renames it to the target; until then, an existing target file stays
//! as it is. A file that is dropped without a commit is removed, and [`abandon_all`] removes the
//! files that are still open when the process ends. A process that is killed leaves a file such as
//! `.rows.parquet.x7Kq2a.tmp`, which no source reads.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

/// Maximum number of symbolic links that are followed from a path to its file. More links are an
/// error, as on Linux.
const LINKS: usize = 40;

/// Temporary files that this process has open.
static OPEN: Mutex<OpenFiles> = Mutex::new(OpenFiles {
    paths: BTreeSet::new(),
    is_closed: false,
});

#[derive(Debug)]
struct OpenFiles {
    paths: BTreeSet<PathBuf>,
    /// True after the call of [`abandon_all`]: the process is ending, so no file may be created any
    /// more.
    is_closed: bool,
}

fn open_files() -> MutexGuard<'static, OpenFiles> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the open temporary files, and makes every later creation of a file fail. Called when the
/// process is about to end.
pub fn abandon_all() {
    let mut open = open_files();
    open.is_closed = true;
    for path in std::mem::take(&mut open.paths) {
        // The process is ending, so an error cannot be reported any more.
        fs::remove_file(path).ok();
    }
}

/// A file that is being written, and that appears under its name on [`commit`](Self::commit).
#[derive(Debug)]
pub struct OutputFile(Inner);

#[derive(Debug)]
enum Inner {
    /// A temporary file beside its target.
    Beside(NewFile, PathBuf),
    /// A pipe, a device or a file descriptor of this process, to which bytes are written directly.
    Direct(File),
}

impl OutputFile {
    /// Creates a file that gets the name `path` on [`commit`](Self::commit). Pipes, devices and
    /// file descriptors (`/dev/stdout`) are opened directly. If `path` is a symbolic link, the link
    /// stays, and the file to which it leads is replaced.
    ///
    /// # Errors
    /// Fails if the folder is not writable, or if a file exists at `path` and is not writable.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (target, found) = match destination(path)? {
            Destination::File(target, found) => (target, found),
            Destination::Direct(target) => {
                // The target is opened for appending, so that bytes of other writers are not
                // overwritten.
                let file = File::options().append(true).open(target)?;
                return Ok(Self(Inner::Direct(file)));
            }
        };
        if found.is_some() {
            // A file without write permission must not be replaced. Opening such a file for writing
            // fails.
            File::options().write(true).open(&target)?;
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let file = NewFile::create(folder_of(&target), &name)?;
        if let Some(found) = found {
            file.as_file().set_permissions(found.permissions())?;
        }
        Ok(Self(Inner::Beside(file, target)))
    }

    /// Returns true if bytes reach the target as soon as they are written, not only on
    /// [`commit`](Self::commit).
    pub const fn is_direct(&self) -> bool {
        matches!(self.0, Inner::Direct(_))
    }

    /// Returns another handle of the file, to which an encoder can write.
    pub fn handle(&self) -> io::Result<File> {
        self.as_file().try_clone()
    }

    fn as_file(&self) -> &File {
        match &self.0 {
            Inner::Beside(file, _) => file.as_file(),
            Inner::Direct(file) => file,
        }
    }

    /// Gives the file its name, and returns its size in bytes. Waits until the contents are on
    /// disk, so they survive a crash of the machine.
    pub fn commit(self) -> io::Result<u64> {
        self.publish(true)
    }

    /// Does the same as [`commit`](Self::commit), but does not wait until the contents are on disk.
    /// For files that can be computed again.
    pub fn commit_cached(self) -> io::Result<u64> {
        self.publish(false)
    }

    fn publish(self, is_durable: bool) -> io::Result<u64> {
        let bytes = self.as_file().metadata()?.len();
        if let Inner::Beside(file, target) = self.0 {
            file.publish(&target, is_durable)?;
        }
        Ok(bytes)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.as_file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.as_file().flush()
    }
}

/// Writes a file at `path` with the contents `bytes`, which replaces an existing file.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    file.write_all(bytes)?;
    file.commit().map(drop)
}

/// A temporary file that gets its final name when it is published.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: NamedTempFile,
    registered: Registered,
}

/// Path of a temporary file that [`abandon_all`] removes if the process ends before this value is
/// dropped.
#[derive(Debug)]
struct Registered(PathBuf);

impl Drop for Registered {
    fn drop(&mut self) {
        open_files().paths.remove(&self.0);
    }
}

impl NewFile {
    /// Creates a temporary file in `folder`. `purpose` becomes a part of the file's name.
    pub(crate) fn create(folder: &Path, purpose: &str) -> io::Result<Self> {
        let prefix = format!(".{purpose}.");
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // These are the permissions of an ordinary new file. The system applies the process's
            // umask to them.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let mut open = open_files();
        if open.is_closed {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the process is ending",
            ));
        }
        let file = builder.tempfile_in(folder)?;
        let registered = Registered(file.path().to_path_buf());
        open.paths.insert(registered.0.clone());
        Ok(Self { file, registered })
    }

    pub(crate) fn as_file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the file the name `path`, and replaces an existing file. If `is_durable` is true,
    /// waits until the contents and the name are on disk.
    pub(crate) fn publish(self, path: &Path, is_durable: bool) -> io::Result<()> {
        if is_durable {
            self.as_file().sync_all()?;
        }
        fs::rename(&self.registered.0, path)?;
        let (_, mut temporary) = self.file.into_parts();
        temporary.disable_cleanup(true);
        if is_durable {
            sync_folder(folder_of(path));
        }
        Ok(())
    }

    /// Gives the file the name `path`, unless a file with that name exists. On failure, returns the
    /// error together with the file, which is still temporary.
    pub(crate) fn publish_new(mut self, path: &Path) -> Result<(), (io::Error, Self)> {
        if let Err(error) = self.as_file().sync_all() {
            return Err((error, self));
        }
        match self.file.persist_noclobber(path) {
            Ok(_) => {
                sync_folder(folder_of(path));
                Ok(())
            }
            Err(taken) => {
                self.file = taken.file;
                Err((taken.error, self))
            }
        }
    }
}

/// Returns the folder part of `path`; `.` if `path` is only a file name.
fn folder_of(path: &Path) -> &Path {
    let named = path.parent().filter(|p| !p.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// Syncs the entries of `folder` to disk. Errors are ignored, because some file systems cannot sync
/// folders, and the new file already has its name.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).ok();
    }
}

/// The target to which a path leads, after symbolic links are followed.
enum Destination {
    /// Path of a regular file, with the file's metadata if the file exists.
    File(PathBuf, Option<Metadata>),
    /// Path of a pipe, a device or a file descriptor, to which bytes are written directly.
    Direct(PathBuf),
}

fn destination(path: &Path) -> io::Result<Destination> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let Some(name) = path.file_name() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let full = fs::canonicalize(folder_of(&path))?.join(name);
        // The path is a file descriptor of this process, such as `/dev/stdout`. If the descriptor
        // refers to a file, bytes are written at its current position.
        if full.starts_with("/proc") {
            return Ok(Destination::Direct(full));
        }
        let found = match fs::symlink_metadata(&full) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Destination::File(full, None));
            }
            Err(error) => return Err(error),
        };
        let kind = found.file_type();
        if kind.is_symlink() {
            path = folder_of(&full).join(fs::read_link(&full)?);
        } else if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        } else if kind.is_file() {
            return Ok(Destination::File(full, Some(found)));
        } else {
            return Ok(Destination::Direct(full));
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Returns the path of the file to which `path` leads after symbolic links are followed, even if
/// the file does not exist; `None` if `path` leads to something else or cannot be examined.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    match destination(path) {
        Ok(Destination::File(path, _)) => Some(path),
        // The folder of the file does not exist yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|f| !f.as_os_str().is_empty())?;
            Some(resolved(folder)?.join(path.file_name()?))
        }
        Ok(Destination::Direct(_)) | Err(_) => None,
    }
}

/// The identity of a file on this machine, independent of the path that leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIdentity {
    #[cfg(unix)]
    inode: (u64, u64),
    #[cfg(not(unix))]
    path: PathBuf,
    /// Size in bytes.
    pub(crate) size: u64,
}

impl FileIdentity {
    /// Returns the identity of the file to which `path` leads; `None` if there is no such file.
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok().filter(Metadata::is_file)?;
        Some(Self {
            #[cfg(unix)]
            inode: {
                use std::os::unix::fs::MetadataExt;
                (found.dev(), found.ino())
            },
            #[cfg(not(unix))]
            path: fs::canonicalize(path).ok()?,
            size: found.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        fs::write(&path, "old").unwrap();
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"half of").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let temporary = names(folder.path()).remove(0);
        assert!(
            temporary.starts_with(".t.csv.") && temporary.ends_with(".tmp"),
            "{temporary}"
        );
        drop(file);
        assert_eq!(names(folder.path()), ["t.csv"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");

        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"all").unwrap();
        file.handle().unwrap().write_all(b" of it").unwrap();
        assert_eq!(file.commit().unwrap(), 9);
        assert_eq!(fs::read_to_string(&path).unwrap(), "all of it");
        assert_eq!(names(folder.path()), ["t.csv"]);
    }

    #[test]
    fn publishing_under_a_taken_name_returns_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("a");
        fs::write(&taken, "other").unwrap();
        let file = NewFile::create(folder.path(), "letters").unwrap();
        let (error, file) = file.publish_new(&taken).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        file.publish_new(&folder.path().join("b")).unwrap();
        assert_eq!(names(folder.path()), ["a", "b"]);
        assert_eq!(fs::read_to_string(&taken).unwrap(), "other");
    }

    #[test]
    fn missing_folders_and_folders_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert!(OutputFile::create(&folder.path().join("none/t.csv")).is_err());
        assert!(OutputFile::create(folder.path()).is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("far")).unwrap();
        fs::write(at("far/real"), "old").unwrap();
        fs::set_permissions(at("far/real"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("far/real", at("link")).unwrap();
        symlink(at("link"), at("second")).unwrap();
        write_whole(&at("second"), b"new").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("far/real")).unwrap(), "new");
        let mode = fs::metadata(at("far/real")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(names(&at("far")), ["real"]);

        symlink("far/later", at("dangling")).unwrap();
        write_whole(&at("dangling"), b"made").unwrap();
        assert_eq!(fs::read_to_string(at("far/later")).unwrap(), "made");
        symlink("loop", at("loop")).unwrap();
        assert!(OutputFile::create(&at("loop")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn all_paths_to_a_file_have_one_identity() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "same").unwrap();
        fs::write(at("b"), "same").unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        std::os::unix::fs::symlink("a", at("soft")).unwrap();
        let a = FileIdentity::of(&at("a"));
        assert!(a.is_some());
        assert_eq!(a, FileIdentity::of(&at("hard")));
        assert_eq!(a, FileIdentity::of(&at("soft")));
        assert_ne!(a, FileIdentity::of(&at("b")));
        assert_eq!(FileIdentity::of(&at("none")), None);
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_written_directly() {
        let mut file = OutputFile::create(Path::new("/dev/null")).unwrap();
        assert!(file.is_direct());
        file.write_all(b"gone").unwrap();
        file.commit().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
