//! Statements from a file, an argument or standard input, and the pipeline they mean.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use forebay::Session;

use super::args::Statements;
use super::failure::Failure;

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
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => {
            Failure::Usage(format!("{}: expected SQL as UTF-8 text", path.display()))
        }
        _ => Failure::file("read", path, &error),
    };
    let reader: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    let mut text = String::new();
    reader
        .take(MAX_SQL_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_SQL_BYTES {
        return Err(Failure::Usage(format!(
            "{}: expected at most {MAX_SQL_BYTES} bytes of SQL",
            path.display()
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_sql_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("x.sql");
        std::fs::write(&binary, b"SELECT \xff").unwrap();
        assert!(
            read(&binary)
                .unwrap_err()
                .to_string()
                .ends_with("expected SQL as UTF-8 text")
        );
        let error = read(&folder.path().join("none.sql"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot read ") && error.contains("none.sql"),
            "{error}"
        );
        std::fs::write(&binary, "SELECT 1").unwrap();
        assert_eq!(read(&binary).unwrap(), "SELECT 1");
    }
}
