//! Size limits of function results.

/// Maximum size, in bytes, of the result of one call for one row; a larger result fails the row.
/// The limit decides which rows fail, so a change of the limit requires a new version of the
/// limited functions.
pub const MAX_VALUE_BYTES: u64 = 1 << 28;

/// Maximum size, in bytes, of the results of one call for a batch: the range of a text column's
/// offsets. A batch with larger results is split into smaller batches.
pub const MAX_BATCH_BYTES: u64 = i32::MAX as u64;
