//! The format version and the release, on which sender and receiver must agree.

/// Version of the format of messages, raised when the format changes.
pub(super) const VERSION: u32 = 2;
/// The Forebay release of this build.
pub(super) const RELEASE: &str = env!("CARGO_PKG_VERSION");
