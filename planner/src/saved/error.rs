//! Why a saved plan is refused.

use super::difference::Difference;
use super::{FOREBAY, MAX_BYTES, VERSION};
use crate::clauses::Relax;

/// Why a saved plan is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedPlanError {
    /// A file of more bytes than a saved plan can have.
    #[error("expected a saved plan of at most {MAX_BYTES} bytes; `forebay plan save` writes one")]
    Size,
    /// A plan that would be such a file.
    #[error(
        "the plan takes {0} bytes as a file, above {MAX_BYTES}: its pipeline's text has long lists, which a join \
         with a table would shorten"
    )]
    TooLarge(usize),
    /// Text that is no saved plan.
    #[error("this is no saved plan: {0}; `forebay plan save` writes one")]
    Malformed(String),
    /// A saved plan of another form.
    #[error(
        "this plan was saved in form {found} by forebay {forebay}, and forebay {FOREBAY} reads form {VERSION}: \
         save it anew with `forebay plan save`, or run the job with the forebay that saved it"
    )]
    Form {
        /// The form of the file.
        found: u32,
        /// The release that wrote it.
        forebay: String,
    },
    /// A hash is not that of the text beside it.
    #[error(
        "this saved plan was changed after it was saved: its {what} is not that of its text; save it anew \
         with `forebay plan save`"
    )]
    Changed {
        /// Which hash.
        what: &'static str,
    },
    /// The pipeline is at another tier.
    #[error(
        "the plan was saved at the tier {saved}, and the pipeline is at the tier {now}: set OPTIONS (relax = \
         '..') as it was, or save the plan anew with `forebay plan save`"
    )]
    Tier {
        /// The tier of the saved plan.
        saved: String,
        /// The pipeline's.
        now: Relax,
    },
    /// The pipeline means another stream.
    #[error(
        "the plan was saved for a pipeline of another meaning: {0}; run the pipeline as it was, or save the \
         plan anew with `forebay plan save`"
    )]
    Meaning(Difference),
    /// Another plan comes out, which gives another stream.
    #[error(
        "the saved plan does not come out again: {0}; above relax = 'none' another plan gives another \
         stream: save it anew with `forebay plan save` and begin the job again, or set relax = 'none'"
    )]
    Plan(Difference),
}
