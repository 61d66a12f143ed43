//! Buffers that a thread keeps from row to row.

use std::cell::Cell;

use super::pixels::Scratch;

/// A thread frees buffers above this size instead of keeping them: otherwise each thread comes to
/// hold the largest image that it has met. 4 MiB holds a photo of a megapixel; larger ones take so
/// long to decode that allocating for them does not show.
const KEPT_BYTES: usize = 4 << 20;

thread_local! {
    static SPARE: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Runs `work` with this thread's buffers. They are taken out, not borrowed: a nested call on the
/// same thread gets buffers of its own.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SPARE.take().unwrap_or_default();
    let result = work(&mut scratch);
    if scratch.bytes() <= KEPT_BYTES {
        SPARE.set(Some(scratch));
    }
    result
}
