//! The folder of dead letters.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::{Source, check_output};

/// Returns the folder that a pipeline names for dead letters; `None` if it names none.
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

/// Checks that no source would read dead letters in this folder as rows.
///
/// # Errors
/// Fails if the source includes the Parquet files of that folder.
pub(crate) fn check_folder(folder: &Path, source: &dyn Source) -> Result<()> {
    let letters = folder.join("letters.parquet");
    check_output(source, &letters).map_err(|why| Error::Config(format!("dead_letters: {why}")))
}
