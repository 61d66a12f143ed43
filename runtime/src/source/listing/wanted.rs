//! The names of the files that a format reads.

/// Describes the files of a folder or glob that a format reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedFiles {
    /// The word for such files in messages, for example "image" in "no image file".
    pub(crate) noun: &'static str,
    /// Extensions of these files, in lower case and without the first dot, for example `tar.gz`. A
    /// folder's files with other extensions are ignored.
    pub(crate) extensions: &'static [&'static str],
    /// True when the files of a glob, and a file that is itself the location, must have one of
    /// these extensions, too.
    pub(crate) strict: bool,
}

impl WantedFiles {
    pub(super) fn has_extension(&self, relative: &str) -> bool {
        self.extensions.iter().any(|extension| {
            let stem = relative.len().checked_sub(extension.len() + 1);
            let end = stem.and_then(|stem| relative.as_bytes().get(stem..));
            end.is_some_and(|end| {
                end[0] == b'.' && end[1..].eq_ignore_ascii_case(extension.as_bytes())
            })
        })
    }

    pub(super) fn extension_list(&self) -> String {
        self.extensions
            .iter()
            .map(|e| format!(".{e}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Extensions of archives and of compressed files. Of all formats, only `WEBDATASET` reads some of
/// these files.
const ARCHIVES: &[&str] = &["tar", "tgz", "gz", "zip", "zst", "bz2", "xz", "7z", "rar"];

/// Returns advice for a message about the file `name`; empty unless `name` has the extension of an
/// archive.
pub(super) fn archive_hint(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if ARCHIVES.iter().any(|a| a.eq_ignore_ascii_case(extension)) {
        " (only webdataset reads archives: unpack them, and name the folder)"
    } else {
        ""
    }
}
