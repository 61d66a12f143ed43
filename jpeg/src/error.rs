//! Errors of headers and seek indexes.

use thiserror::Error;

/// An error of a file's headers or tables.
///
/// Damage in entropy-coded data is no error: its pixels are defined, as
/// [`RegionDecoder::decode`](crate::RegionDecoder::decode) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file does not begin with a start-of-image marker.
    #[error("the file does not begin with a JPEG start marker")]
    NoStart,
    /// The file ends within its headers.
    #[error("the JPEG is truncated (it ends within its headers)")]
    Truncated,
    /// A segment contradicts itself or another one.
    #[error("the JPEG has an invalid {0}")]
    Invalid(&'static str),
    /// A scan uses a table that the file does not define.
    #[error("the JPEG has no {0} that its scan names")]
    Missing(&'static str),
    /// The image has no rows or no columns.
    #[error("the JPEG has no pixels ({width} x {height})")]
    Empty {
        /// Width in pixels.
        width: u16,
        /// Height in pixels.
        height: u16,
    },
    /// The file is valid, but of a kind that this decoder does not decode.
    #[error("cannot decode {0}")]
    Unsupported(&'static str),
}

/// An error of a serialised [`SeekIndex`](crate::SeekIndex).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SeekIndexError {
    /// The file is progressive, or its components are in several scans.
    #[error("the JPEG can have no seek index (its data is in several scans)")]
    NotSeekable,
    /// The bytes have another version of the form.
    #[error("the seek index has version {0}, which is unknown")]
    Version(u8),
    /// The bytes are damaged, or belong to a file of another size.
    #[error("the seek index is invalid, or belongs to another file")]
    Invalid,
}
