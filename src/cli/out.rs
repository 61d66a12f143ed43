//! Files that commands write: `--out` and others.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay::Session;
use forebay::generate::{TableFormat, TableWriter};
use forebay_runtime::output_file::{FileIdentity, resolved, write_whole};

use super::args::{Engine, Statements};
use super::costs::session;
use super::failure::Failure;

/// The format of a file that is to be written.
pub(crate) fn format(out: &Path) -> Result<TableFormat, Failure> {
    TableFormat::of_path(out).ok_or_else(|| {
        Failure::Usage(format!(
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
) -> Result<(), Failure> {
    let mut writer = TableWriter::create(out, format(out)?, schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    Ok(())
}

/// Writes a text to a file.
pub(crate) fn text(out: &Path, text: &str) -> Result<(), Failure> {
    write_whole(out, text.as_bytes()).map_err(|error| Failure::file("write", out, &error))
}

/// A session that refuses to read what is to be written; see [`refuse_inputs`] for the files that the command
/// reads itself.
pub(crate) fn session_for<'a>(
    outputs: impl IntoIterator<Item = &'a Path>,
) -> Result<Session, Failure> {
    let session = session()?;
    for output in outputs {
        session.declare_output(output);
    }
    Ok(session)
}

/// Whether two names lead to the same file, or would.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    // A file that is still to be made has no identity, but a place.
    one == other
        || FileIdentity::of(one).is_some_and(|first| FileIdentity::of(other) == Some(first))
        || resolved(one).is_some_and(|first| resolved(other) == Some(first))
}

/// Refuses an output that is one of the files that a command reads, or in a folder that it reads.
pub(crate) fn refuse_inputs<'a>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let folder = output.parent().filter(|f| !f.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    let is_within = |input: &Path| {
        let input = input.canonicalize().ok().filter(|input| input.is_dir());
        input.is_some_and(|input| folder.as_ref().is_ok_and(|folder| *folder == input))
    };
    let mut inputs = inputs.into_iter();
    match inputs.find(|input| is_same(input, output) || is_within(input)) {
        Some(input) => Err(Failure::Usage(format!(
            "cannot write {}: it is an input, {}; name another file",
            output.display(),
            input.display()
        ))),
        None => Ok(()),
    }
}

impl Statements {
    /// The files that are read for a pipeline: its text, and its plan.
    pub(crate) fn files<'a>(&'a self, engine: &'a Engine) -> impl Iterator<Item = &'a Path> {
        self.file
            .as_deref()
            .into_iter()
            .chain(engine.plan.as_deref())
    }
}
