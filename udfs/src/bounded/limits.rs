//! Size limits of results.

/// Maximum size, in bytes, of the result of one call for one row; a larger result fails the row.
/// Changing the limit requires a new version of the limited functions, since it decides which rows
/// fail.
pub const MAX_VALUE_BYTES: u64 = 1 << 28;

/// Maximum size, in bytes, of the results of one call for a batch: the range of a text column's
/// offsets. A larger batch is computed in smaller ones.
pub const MAX_BATCH_BYTES: u64 = i32::MAX as u64;
