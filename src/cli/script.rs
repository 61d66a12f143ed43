//! Statements from a file, an argument or standard input, and the pipeline they mean.

use std::path::Path;

use forebay::Session;

use super::args::Statements;
use super::failure::Failure;
use super::input;

/// Most bytes of SQL: enough for any script, and a wrong file is noticed before memory is.
const MAX_SQL_BYTES: u64 = 16 << 20;

impl Statements {
    /// The SQL text.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        match (&self.sql, &self.file) {
            (Some(sql), _) => Ok(sql.clone()),
            (None, Some(path)) => read(path),
            (None, None) => Err(Failure::Usage(
                "no SQL given: expected -f FILE or -e 'CREATE ..; SELECT ..'".to_owned(),
            )),
        }
    }

    /// Loads the statements and answers their only pipeline, or the one of `--pipeline`.
    pub(crate) async fn load(&self, session: &Session) -> Result<String, Failure> {
        let names = session.load(&self.text()?).await?;
        match (&self.pipeline, names.as_slice()) {
            (Some(name), _) => Ok(name.clone()),
            (None, [name]) => Ok(name.clone()),
            (None, []) => Err(Failure::Usage(
                "the statements make no pipeline: expected CREATE PIPELINE name AS SELECT .., or a \
                 query"
                    .to_owned(),
            )),
            (None, names) => Err(Failure::Usage(format!(
                "the statements make the pipelines {}: choose one with --pipeline NAME",
                names.join(", ")
            ))),
        }
    }
}

/// Reads SQL from a file, or from standard input where the path is `-`.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    input::text(path, "SQL", MAX_SQL_BYTES)
}
