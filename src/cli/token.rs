//! `forebay token`.

use super::args::TokenArgs;
use super::failure::CommandFailure;
use super::{console, input};

/// Shows a resume token.
pub(crate) fn execute(args: &TokenArgs) -> Result<(), CommandFailure> {
    match args {
        TokenArgs::Show { file } => console::data(&input::token(file)?.to_string()),
    }
}
