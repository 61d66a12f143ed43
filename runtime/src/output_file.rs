//! Output files that appear under their name complete or not at all.
//!
//! Bytes go to a hidden temporary file beside the target. [`OutputFile::commit`] syncs it to disk
//! and gives it the target's name; an existing file of that name stays until then. A file that is
//! dropped without a commit is removed, and [`abandon_all`] removes the files still open when the
//! process ends. A process that is killed leaves a file such as `.rows.parquet.x7Kq2a.tmp`, which
//! no source reads.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

/// Maximum number of symbolic links that are followed to a file, as on Linux; more are an error.
const LINKS: usize = 40;

/// Temporary files of this process.
static OPEN: Mutex<Open> = Mutex::new(Open {
    paths: BTreeSet::new(),
    is_closed: false,
});

#[derive(Debug)]
struct Open {
    paths: BTreeSet<PathBuf>,
    /// True once the process is ending, so that no file may be created.
    is_closed: bool,
}

fn open_files() -> MutexGuard<'static, Open> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the open temporary files, and makes the creation of others fail. Called when the process
/// is about to end.
pub fn abandon_all() {
    let mut open = open_files();
    open.is_closed = true;
    for path in std::mem::take(&mut open.paths) {
        // The process is ending, so nobody can be told about an error.
        fs::remove_file(path).ok();
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct OutputFile(Inner);

#[derive(Debug)]
enum Inner {
    /// A temporary file beside its target.
    Beside(NewFile, PathBuf),
    /// A pipe, a device or a descriptor of this process, which is written directly.
    Direct(File),
}

impl OutputFile {
    /// Creates a file that gets this name on [`commit`](Self::commit). Pipes, devices and
    /// descriptors (`/dev/stdout`) are opened directly. A symbolic link stays: the file that it
    /// leads to is replaced.
    ///
    /// # Errors
    /// Fails if the folder cannot be written to, or the existing file may not be replaced.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (target, found) = match destination(path)? {
            Destination::File(target, found) => (target, found),
            Destination::Direct(target) => {
                // Opened for appending, so that bytes from other writers are not overwritten.
                let file = File::options().append(true).open(target)?;
                return Ok(Self(Inner::Direct(file)));
            }
        };
        if found.is_some() {
            // A file without write permission may not be replaced, so opening it must succeed.
            File::options().write(true).open(&target)?;
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let file = NewFile::create(folder_of(&target), &name)?;
        if let Some(found) = found {
            file.as_file().set_permissions(found.permissions())?;
        }
        Ok(Self(Inner::Beside(file, target)))
    }

    /// Returns true if written bytes reach their reader at once, rather than on
    /// [`commit`](Self::commit).
    pub const fn is_direct(&self) -> bool {
        matches!(self.0, Inner::Direct(_))
    }

    /// Returns another handle of the file, for an encoder.
    pub fn handle(&self) -> io::Result<File> {
        self.as_file().try_clone()
    }

    fn as_file(&self) -> &File {
        match &self.0 {
            Inner::Beside(file, _) => file.as_file(),
            Inner::Direct(file) => file,
        }
    }

    /// Gives the file its name and returns its size. The contents survive a crash of the machine.
    pub fn commit(self) -> io::Result<u64> {
        self.publish(true)
    }

    /// Like [`commit`](Self::commit), but without waiting for the disk: for files that can be computed again.
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

/// Writes a whole file.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    file.write_all(bytes)?;
    file.commit().map(drop)
}

/// A file that does not have its final name yet.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: NamedTempFile,
    registered: Registered,
}

/// A temporary file that [`abandon_all`] removes.
#[derive(Debug)]
struct Registered(PathBuf);

impl Drop for Registered {
    fn drop(&mut self) {
        open_files().paths.remove(&self.0);
    }
}

impl NewFile {
    /// Creates a temporary file in a folder. `purpose` becomes a part of its name.
    pub(crate) fn create(folder: &Path, purpose: &str) -> io::Result<Self> {
        let prefix = format!(".{purpose}.");
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The permissions of an ordinary new file; the system applies the process's umask.
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

    /// Gives the file its name, replacing an existing file.
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

    /// Gives the file its name unless a file with that name exists; the error then contains the
    /// unnamed file.
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

/// Returns the folder of a file; `.` if its path has no folder.
fn folder_of(path: &Path) -> &Path {
    let named = path.parent().filter(|p| !p.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// Syncs a folder's entries to disk. Errors are ignored: some file systems cannot do it, and the
/// file has its name already.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).ok();
    }
}

/// The place that a path leads to.
enum Destination {
    /// A regular file, with its metadata if it exists.
    File(PathBuf, Option<Metadata>),
    /// A pipe, a device or a descriptor, which is written directly.
    Direct(PathBuf),
}

fn destination(path: &Path) -> io::Result<Destination> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let Some(name) = path.file_name() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let full = fs::canonicalize(folder_of(&path))?.join(name);
        // A descriptor of this process. If it is a file, it is written at the current position of
        // the descriptor.
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

/// Returns the file that a path leads to, following links, whether it exists or not; `None` if the
/// path leads to something else or cannot be examined.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    match destination(path) {
        Ok(Destination::File(path, _)) => Some(path),
        // The file's folder does not exist yet.
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
    /// Returns the identity of the file that a path leads to; `None` if there is none.
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
