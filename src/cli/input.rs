//! Input files of commands: SQL text, saved plans and resume tokens.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use forebay::{SavedPlan, Token};
use forebay_planner::saved::MAX_BYTES as PLAN_BYTES;

use super::failure::CommandFailure;

/// Maximum size, in bytes, of a token file; a larger file is refused.
const TOKEN_BYTES: u64 = 1 << 20;

/// Reads UTF-8 text from a file, or from standard input if `path` is `-`. Fails if the text has
/// more than `most` bytes, so that a wrong file does not fill the memory. In error messages, `what`
/// names the expected content.
pub(crate) fn text(path: &Path, what: &str, most: u64) -> Result<String, CommandFailure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => {
            CommandFailure::Usage(format!("{}: expected {what} as UTF-8 text", path.display()))
        }
        _ => CommandFailure::file("read", path, &error),
    };
    let reader: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    let mut bytes = Vec::new();
    reader
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(CommandFailure::Usage(format!(
            "{}: expected {what} of at most {most} bytes",
            path.display()
        )));
    }
    String::from_utf8(bytes)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// Reads a saved plan.
pub(crate) fn plan(path: &Path) -> Result<SavedPlan, CommandFailure> {
    let text = text(path, "a saved plan", PLAN_BYTES as u64)?;
    SavedPlan::from_json(&text)
        .map_err(|error| CommandFailure::Usage(format!("{}: {error}", path.display())))
}

/// Reads a resume token.
pub(crate) fn token(path: &Path) -> Result<Token, CommandFailure> {
    let text = text(path, "a resume token", TOKEN_BYTES)?;
    Token::from_json(text.trim())
        .map_err(|error| CommandFailure::Usage(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.sql");
        let read = |most| text(&file, "SQL", most).map_err(|error| error.to_string());
        let error = read(9).unwrap_err();
        assert!(
            error.starts_with("cannot read ") && error.contains("x.sql"),
            "{error}"
        );
        std::fs::write(&file, b"SELECT \xff").unwrap();
        assert!(read(9).unwrap_err().ends_with("expected SQL as UTF-8 text"));
        std::fs::write(&file, "SELECT 1").unwrap();
        assert_eq!(read(8).unwrap(), "SELECT 1");
        assert!(
            read(7)
                .unwrap_err()
                .ends_with("expected SQL of at most 7 bytes")
        );
    }
}
