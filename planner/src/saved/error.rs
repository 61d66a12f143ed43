//! Errors of reading a saved plan.

use super::difference::Difference;
use super::form::{FOREBAY, MAX_BYTES, VERSION};
use crate::clauses::Relax;

/// The reason why a saved plan is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedPlanError {
    /// The file has more than `MAX_BYTES` bytes.
    #[error("expected a saved plan of at most {MAX_BYTES} bytes; `forebay plan save` writes one")]
    Size,
    /// The plan to save would take more than `MAX_BYTES` bytes.
    #[error(
        "the plan takes {0} bytes as a file, above {MAX_BYTES}: its pipeline's text has long lists, which a join \
         with a table would shorten"
    )]
    TooLarge(usize),
    /// The text is not a saved plan.
    #[error("not a saved plan: {0}; `forebay plan save` writes one")]
    Malformed(String),
    /// The saved plan has another format version.
    #[error(
        "this plan has format version {found}, written by forebay {forebay}, but forebay {FOREBAY} reads \
        version {VERSION}: \
         save the plan again with `forebay plan save`, or run the job with the forebay that saved it"
    )]
    Form {
        /// The format version of the file.
        found: u32,
        /// The release that wrote the file.
        forebay: String,
    },
    /// A hash does not match the text that it belongs to.
    #[error(
        "this saved plan was edited: its {what} does not match its text; save the plan again with `forebay plan save`"
    )]
    Changed {
        /// Name of the hash that does not match.
        what: &'static str,
    },
    /// The pipeline's `relax` level differs from that of the saved plan.
    #[error(
        "the plan was saved with relax = '{saved}', but the pipeline has relax = '{}': set OPTIONS (relax = \
         '{saved}'), or save the plan anew with `forebay plan save`",
        now.option()
    )]
    Tier {
        /// The `relax` level of the saved plan.
        saved: String,
        /// The `relax` level of the pipeline.
        now: Relax,
    },
    /// The pipeline describes another stream than the pipeline whose plan was saved.
    #[error(
        "the plan was saved for a pipeline with another meaning: {0}; restore the pipeline, or save the plan \
        anew with `forebay plan save`"
    )]
    Meaning(Difference),
    /// Planning yields another plan than the saved plan. Under the pipeline's `relax` level, that
    /// may change the stream.
    #[error(
        "planning here gives another plan than the saved one: {0}. With this relax another plan gives another \
        stream: save the plan anew with `forebay plan save` and restart the job, or set relax = 'none'"
    )]
    Plan(Difference),
}
