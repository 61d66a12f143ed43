//! Separators, quotes and comments of a CSV file.

/// The characters that separate the fields of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) quote: u8,
    pub(super) escape: Option<u8>,
    pub(super) comment: Option<u8>,
}
