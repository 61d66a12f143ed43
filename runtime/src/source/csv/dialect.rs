//! The special characters of a CSV file: delimiter, quote, escape and comment.

/// The special characters of a CSV file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) quote: u8,
    pub(super) escape: Option<u8>,
    pub(super) comment: Option<u8>,
}
