//! Text from files and from standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::failure::Failure;

/// Reads `what` from a file, or from standard input where the path is `-`. A wrong file is noticed before
/// it fills the memory.
pub(crate) fn text(path: &Path, what: &str, most: u64) -> Result<String, Failure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => {
            Failure::Usage(format!("{}: expected {what} as UTF-8 text", path.display()))
        }
        _ => Failure::file("read", path, &error),
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
        return Err(Failure::Usage(format!(
            "{}: expected {what} of at most {most} bytes",
            path.display()
        )));
    }
    String::from_utf8(bytes)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
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
