//! Buffers that a thread reuses from row to row.

use std::cell::Cell;

use super::kernel::geometry::Region;
use super::kernel::resize::Resampler;
use super::pixels::Pixels;
use super::values::Interpolation;

/// The buffers that one thread reuses from row to row.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The current image.
    pub(crate) front: Pixels,
    /// Output of the next kernel that does not work in place. `swap` makes this output the current
    /// image.
    pub(crate) back: Pixels,
    /// The resizer, which has buffers of its own.
    pub(crate) resizer: Resampler,
    /// Rows of samples that the blur works on.
    pub(crate) lines: Vec<f32>,
}

impl Scratch {
    /// Allocated size, in bytes, of the image buffers.
    pub(crate) const fn bytes(&self) -> usize {
        let floats = self.front.f32s.capacity() + self.back.f32s.capacity() + self.lines.capacity();
        self.front.u8s.capacity() + self.back.u8s.capacity() + 4 * floats
    }

    /// Makes `back`, which a kernel has written, the current image, with its samples rounded to the
    /// element type.
    pub(crate) fn swap(&mut self) {
        std::mem::swap(&mut self.front, &mut self.back);
        self.front.settle();
    }

    /// Resizes a region of the current image, and makes the result the current image.
    pub(crate) fn resize(
        &mut self,
        from: Region,
        size: (usize, usize),
        filter: Interpolation,
    ) -> Result<(), String> {
        let target = &mut self.back;
        self.resizer
            .run(&mut self.front, from, size, filter, target)?;
        self.swap();
        Ok(())
    }
}

/// Maximum size, in bytes, of the buffers that a thread keeps for reuse. Larger buffers are freed:
/// otherwise each thread would in the end hold buffers for the largest image that it has processed.
/// 4 MiB hold a photo of a megapixel; a larger image takes so long to decode that allocating its
/// buffers is negligible.
const KEPT_BYTES: usize = 4 << 20;

thread_local! {
    static SPARE: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Runs `work` with this thread's buffers. The buffers are taken out of the thread-local variable,
/// not borrowed, so a nested call on the same thread gets separate buffers.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SPARE.take().unwrap_or_default();
    let result = work(&mut scratch);
    if scratch.bytes() <= KEPT_BYTES {
        SPARE.set(Some(scratch));
    }
    result
}
