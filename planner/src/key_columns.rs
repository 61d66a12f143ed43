//! Hidden columns of a compiled plan. Their values decide how rows are grouped into packs, buckets
//! and batches.

/// Name of the hidden column with the lengths of the sequences that PACK or BATCH BY TOKENS counts.
pub const LENGTH_COLUMN: &str = "__length";
/// Name of the hidden column with the value that decides a row's bucket.
pub const BUCKET_COLUMN: &str = "__bucket";

/// True for the name of a hidden column, which decides how rows are grouped and is left out of
/// batches.
pub fn is_hidden(column: &str) -> bool {
    column == LENGTH_COLUMN || column == BUCKET_COLUMN
}
