//! `forebay token`, and tokens in files.

use std::path::Path;

use forebay::Token;

use super::args::TokenArgs;
use super::failure::Failure;
use super::{input, out, output};

/// Largest file that is read as a token.
const LARGEST: u64 = 1 << 20;

/// Shows a token.
pub(crate) fn execute(args: &TokenArgs) -> Result<(), Failure> {
    match args {
        TokenArgs::Show { file } => output::data(&read(file)?.to_string()),
    }
}

/// Reads a token.
pub(crate) fn read(path: &Path) -> Result<Token, Failure> {
    let text = input::text(path, "a resume token", LARGEST)?;
    Token::from_json(text.trim())
        .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Writes a token.
pub(crate) fn write(path: &Path, token: &Token) -> Result<(), Failure> {
    let text = token.to_json().map_err(forebay::Error::from)?;
    out::text(path, &(text + "\n"))
}
