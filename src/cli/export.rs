//! Output files of commands, such as `--out`.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay::Token;
use forebay::generate::{TableFormat, TableWriter};
use forebay_runtime::output_file::{FileIdentity, resolved, write_whole};

use super::failure::CommandFailure;

/// Returns the file format that the extension of an output selects; fails if no format has this
/// extension.
pub(crate) fn format(out: &Path) -> Result<TableFormat, CommandFailure> {
    TableFormat::of_path(out).ok_or_else(|| {
        CommandFailure::Usage(format!(
            "--out {}: expected a name that ends with .parquet or .arrow, or with .csv or .json for plain columns",
            out.display()
        ))
    })
}

/// Writes rows to a file.
pub(crate) fn write(
    out: &Path,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<(), CommandFailure> {
    let mut writer = TableWriter::create(out, format(out)?, schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    Ok(())
}

/// Writes a text to a file.
pub(crate) fn text(out: &Path, text: &str) -> Result<(), CommandFailure> {
    write_whole(out, text.as_bytes()).map_err(|error| CommandFailure::file("write", out, &error))
}

/// True if two paths name the same file, or will name the same file once the file exists.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    // A file that does not exist yet has no identity to compare, so the resolved paths are
    // compared, too.
    one == other
        || FileIdentity::of(one).is_some_and(|first| FileIdentity::of(other) == Some(first))
        || resolved(one).is_some_and(|first| resolved(other) == Some(first))
}

/// Fails if the file `output` is one of the command's inputs, or lies in an input folder.
pub(crate) fn refuse_inputs<'a>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), CommandFailure> {
    let folder = output.parent().filter(|f| !f.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    let is_within = |input: &Path| {
        let input = input.canonicalize().ok().filter(|input| input.is_dir());
        input.is_some_and(|input| folder.as_ref().is_ok_and(|folder| *folder == input))
    };
    let mut inputs = inputs.into_iter();
    match inputs.find(|input| is_same(input, output) || is_within(input)) {
        Some(input) => Err(CommandFailure::Usage(format!(
            "cannot write {}: it is an input, {}; name another file",
            output.display(),
            input.display()
        ))),
        None => Ok(()),
    }
}

/// Writes a resume token to a file.
pub(crate) fn token(path: &Path, token: &Token) -> Result<(), CommandFailure> {
    let text = token.to_json().map_err(forebay::Error::from)?;
    self::text(path, &(text + "\n"))
}
