//! Format version and size limit of the file of a saved plan.

/// Version of the file format, raised when the format changes.
pub const VERSION: u32 = 2;
/// Maximum size of the file in bytes: a hundred times the size of the saved plan of a large
/// pipeline.
pub const MAX_BYTES: usize = 4 << 20;
/// The Forebay release of this build.
pub(super) const FOREBAY: &str = env!("CARGO_PKG_VERSION");
