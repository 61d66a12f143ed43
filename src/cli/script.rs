//! Reads SQL statements from a file, an argument or standard input, and selects the pipeline to
//! use.

use std::path::Path;

use forebay::Session;

use super::args::Statements;
use super::failure::CommandFailure;
use super::input;

/// Maximum size of SQL text, in bytes; a longer text is refused. The limit is above the size of any
/// script, and keeps a wrong file from filling the memory.
const MAX_SQL_BYTES: u64 = 16 << 20;

impl Statements {
    /// Returns the SQL text, from the argument, the file or standard input.
    pub(crate) fn text(&self) -> Result<String, CommandFailure> {
        match (&self.sql, &self.file) {
            (Some(sql), _) => Ok(sql.clone()),
            (None, Some(path)) => read(path),
            (None, None) => Err(CommandFailure::Usage(
                "no SQL given: expected -f FILE or -e 'CREATE ..; SELECT ..'".to_owned(),
            )),
        }
    }

    /// Executes the statements in `session`. Returns the pipeline name of `--pipeline`, if present,
    /// else the name of the only pipeline that the statements define.
    pub(crate) async fn load(&self, session: &Session) -> Result<String, CommandFailure> {
        let names = session.load(&self.text()?).await?;
        match (&self.pipeline, names.as_slice()) {
            (Some(name), _) => Ok(name.clone()),
            (None, [name]) => Ok(name.clone()),
            (None, []) => Err(CommandFailure::Usage(
                "the statements define no pipeline: add CREATE PIPELINE name AS SELECT .., or a query"
                    .to_owned(),
            )),
            (None, names) => Err(CommandFailure::Usage(format!(
                "the statements define several pipelines ({}): choose one with --pipeline NAME",
                names.join(", ")
            ))),
        }
    }
}

/// Reads SQL from a file, or from standard input if the path is `-`.
pub(crate) fn read(path: &Path) -> Result<String, CommandFailure> {
    input::text(path, "SQL", MAX_SQL_BYTES)
}
