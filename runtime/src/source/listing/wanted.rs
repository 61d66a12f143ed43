//! The files that a format reads, by their names.

/// The files of a folder or glob that a format reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedFiles {
    /// The files' content as named in messages, for example "image" in "no image files".
    pub(crate) noun: &'static str,
    /// Extensions without the first dot, in lower case, for example `tar.gz`. Other files of a
    /// folder are ignored.
    pub(crate) extensions: &'static [&'static str],
    /// True when a glob or a single file must have one of these extensions, too.
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

/// Extensions of archives and of compressed files. Only `WEBDATASET` reads some of them.
const ARCHIVES: &[&str] = &["tar", "tgz", "gz", "zip", "zst", "bz2", "xz", "7z", "rar"];

/// Returns the advice in a message about a file that is an archive; empty when the name is not that
/// of one.
pub(super) fn archive_hint(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if ARCHIVES.iter().any(|a| a.eq_ignore_ascii_case(extension)) {
        " (only webdataset reads archives: unpack them, and name the folder)"
    } else {
        ""
    }
}
