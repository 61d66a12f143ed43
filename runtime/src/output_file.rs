//! Files that appear under their name whole or not at all.
//!
//! Bytes go to a hidden temporary file beside the final name. [`OutputFile::commit`] has the system write it to
//! disk and renames it, so a file of that name that was there before stays until then. A file that is not
//! committed is removed when it is dropped, and [`abandon_all`] removes those that are open when the process
//! ends. A process that is killed outright leaves a name such as `.rows.parquet.x7Kq2a.tmp`, which no source reads.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

/// Links that are followed from a name to its file, as the system does.
const LINKS: usize = 40;

/// Temporary files of this process.
static OPEN: Mutex<Open> = Mutex::new(Open {
    paths: BTreeSet::new(),
    is_closed: false,
});

#[derive(Debug)]
struct Open {
    paths: BTreeSet<PathBuf>,
    /// No file may be begun: the process ends.
    is_closed: bool,
}

fn open_files() -> MutexGuard<'static, Open> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files that are open, and has every later one fail: for a process that ends now.
pub fn abandon_all() {
    let mut open = open_files();
    open.is_closed = true;
    for path in std::mem::take(&mut open.paths) {
        // Nobody is left to be told.
        fs::remove_file(path).ok();
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct OutputFile(Inner);

#[derive(Debug)]
enum Inner {
    /// A file beside its final name.
    Beside(NewFile, PathBuf),
    /// A pipe, a device or a descriptor of this process, which is written directly.
    Direct(File),
}

impl OutputFile {
    /// Begins a file that will have this name. Pipes, devices and descriptors (`/dev/stdout`) are opened as they
    /// are. A symbolic link stays one: the file that it leads to is replaced.
    ///
    /// # Errors
    /// The folder cannot be written to, or what has the name may not be replaced.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (target, found) = match destination(path)? {
            Destination::File(target, found) => (target, found),
            Destination::Direct(target) => {
                // Behind what others wrote to the same place, where it has an end.
                let file = File::options().append(true).open(target)?;
                return Ok(Self(Inner::Direct(file)));
            }
        };
        if found.is_some() {
            // A file that may not be written is not replaced either.
            File::options().write(true).open(&target)?;
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let file = NewFile::create(folder_of(&target), &name)?;
        if let Some(found) = found {
            file.as_file().set_permissions(found.permissions())?;
        }
        Ok(Self(Inner::Beside(file, target)))
    }

    /// Whether bytes reach their reader at once, rather than with [`commit`](Self::commit).
    pub const fn is_direct(&self) -> bool {
        matches!(self.0, Inner::Direct(_))
    }

    /// Another handle of the file, for an encoder.
    pub fn handle(&self) -> io::Result<File> {
        self.as_file().try_clone()
    }

    fn as_file(&self) -> &File {
        match &self.0 {
            Inner::Beside(file, _) => file.as_file(),
            Inner::Direct(file) => file,
        }
    }

    /// Gives the file its name, and returns its bytes. What was written survives a crash of the machine.
    pub fn commit(self) -> io::Result<u64> {
        self.publish(true)
    }

    /// As [`commit`](Self::commit), without waiting for the disk: for files that can be made again.
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

/// A file without its final name yet.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: NamedTempFile,
    registered: Registered,
}

/// A temporary file that [`abandon_all`] knows of.
#[derive(Debug)]
struct Registered(PathBuf);

impl Drop for Registered {
    fn drop(&mut self) {
        open_files().paths.remove(&self.0);
    }
}

impl NewFile {
    /// Begins a file in a folder. A part of the temporary name says what it is for.
    pub(crate) fn create(folder: &Path, purpose: &str) -> io::Result<Self> {
        let prefix = format!(".{purpose}.");
        let mut builder = Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // What a plain new file has: the system takes the mask of the process off.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let mut open = open_files();
        if open.is_closed {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the process ends",
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

    /// Gives the file its name, in the place of one that has it.
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

    /// Gives the file its name unless another one has it; the file comes back with the error then.
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

/// The folder of a file; `.` where its path names none.
fn folder_of(path: &Path) -> &Path {
    let named = path.parent().filter(|p| !p.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// Has the system write a folder's names to disk. Some file systems cannot; the file has its name either way.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).ok();
    }
}

/// What a name leads to.
enum Destination {
    /// A file, which need not exist.
    File(PathBuf, Option<Metadata>),
    /// Something that is no file.
    Direct(PathBuf),
}

fn destination(path: &Path) -> io::Result<Destination> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let Some(name) = path.file_name() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let full = fs::canonicalize(folder_of(&path))?.join(name);
        // Descriptors of this process: a file behind one is written where its owner has it open.
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

/// The file that a name leads to, links followed, whether it exists or not; `None` where it is no file, or cannot
/// be looked at.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    match destination(path) {
        Ok(Destination::File(path, _)) => Some(path),
        // Its folder is still to be made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|f| !f.as_os_str().is_empty())?;
            Some(resolved(folder)?.join(path.file_name()?))
        }
        Ok(Destination::Direct(_)) | Err(_) => None,
    }
}

/// Names a file on this machine, whatever paths lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIdentity {
    #[cfg(unix)]
    inode: (u64, u64),
    #[cfg(not(unix))]
    path: PathBuf,
    /// Bytes.
    pub(crate) size: u64,
}

impl FileIdentity {
    /// The identity of the file that a path leads to; `None` where there is none.
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
    fn the_older_file_stays_until_the_new_one_is_whole() {
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
    fn a_file_that_another_one_has_the_name_of_comes_back() {
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
    fn a_file_is_known_by_all_its_names() {
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
