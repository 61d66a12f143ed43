//! The folder to which dead letters are written.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::{Source, check_output};

/// Returns the folder of `named`, the pipeline's option `dead_letters`; `None` if the option is not
/// set.
///
/// # Errors
/// Fails if the folder is not on this machine.
pub(crate) fn folder(named: Option<&str>) -> Result<Option<PathBuf>> {
    let Some(named) = named else { return Ok(None) };
    let path = named.strip_prefix("file://").unwrap_or(named);
    if path.contains("://") {
        return Err(Error::Config(format!(
            "dead_letters = '{named}': dead letters are written to a folder of this machine; name one, and copy it \
             where it is wanted"
        )));
    }
    Ok(Some(PathBuf::from(path)))
}

/// Checks that `source` would not read the dead letters in `folder` as rows.
///
/// # Errors
/// Fails if `source` includes the Parquet files in `folder`.
pub(crate) fn check_folder(folder: &Path, source: &dyn Source) -> Result<()> {
    let letters = folder.join("letters.parquet");
    check_output(source, &letters).map_err(|why| Error::Config(format!("dead_letters: {why}")))
}
