//! Buffers that a thread reuses from row to row.

use std::cell::Cell;

use forebay_jpeg::{RegionDecoder, SeekIndex};

use super::kernel::color::grayscale;
use super::kernel::convert::repeat_channel;
use super::kernel::geometry::{self, Region};
use super::kernel::resize::Resampler;
use super::pixels::Pixels;
use super::values::Interpolation;
use crate::simd::Simd;

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
    /// The place of `front` in the image, while it is only the part that the functions read.
    pub(crate) window: Option<Window>,
    /// True while the one channel of `front` stands for three equal ones.
    pub(crate) is_repeated: bool,
    /// The decoder of JPEG files, which has buffers of its own.
    pub(crate) jpeg: JpegTool,
}

/// The place of decoded pixels in their image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Height and width of the image.
    pub(crate) size: (usize, usize),
    /// Row of the first pixel.
    pub(crate) top: usize,
    /// Column of the first pixel.
    pub(crate) left: usize,
}

/// A JPEG decoder with the instructions of this process.
#[derive(Debug)]
pub(crate) struct JpegTool {
    pub(crate) decoder: RegionDecoder,
    /// The index of the file that is decoded.
    pub(crate) index: SeekIndex,
}

impl Default for JpegTool {
    fn default() -> Self {
        Self {
            decoder: RegionDecoder::new(Simd::current().jpeg_instructions()),
            index: SeekIndex::default(),
        }
    }
}

impl Scratch {
    /// Allocated size, in bytes, of the image buffers.
    pub(crate) fn bytes(&self) -> usize {
        let floats = self.front.f32s.capacity() + self.back.f32s.capacity() + self.lines.capacity();
        self.front.u8s.capacity()
            + self.back.u8s.capacity()
            + 4 * floats
            + self.jpeg.decoder.bytes()
            + self.jpeg.index.memory()
            + self.resizer.bytes()
    }

    /// Returns the place of `front` in its image, and forgets it.
    fn take_window(&mut self) -> Window {
        let shape = self.front.shape;
        self.window.take().unwrap_or(Window {
            size: (shape.height, shape.width),
            top: 0,
            left: 0,
        })
    }

    /// Makes the image gray. Of several equal channels, one is computed until
    /// [`repeat_channel`](Self::repeat_channel).
    pub(crate) fn make_gray(&mut self, channels: usize) {
        grayscale(&self.front, &mut self.back);
        self.swap();
        self.is_repeated = channels > 1;
    }

    /// Repeats the channel that stands for three, if `front` has one.
    pub(crate) fn repeat_channel(&mut self) {
        if std::mem::take(&mut self.is_repeated) {
            repeat_channel(&self.front, &mut self.back);
            self.swap();
        }
    }

    /// Makes `back`, which a kernel has written, the current image, with its samples rounded to the
    /// element type.
    pub(crate) fn swap(&mut self) {
        std::mem::swap(&mut self.front, &mut self.back);
        self.front.settle();
    }

    /// Cuts out the rectangle of this height and width at (`top`, `left`) of the image, and makes the
    /// result the current image. Pixels outside the image are zeros.
    pub(crate) fn crop(&mut self, (top, left): (i64, i64), size: (usize, usize)) {
        let window = self.take_window();
        let at = (top - window.top as i64, left - window.left as i64);
        geometry::crop(&self.front, at, size, &mut self.back);
        self.swap();
    }

    /// Returns the height and width of the image, of which `front` may be a part.
    pub(crate) fn image_size(&self) -> (usize, usize) {
        let shape = self.front.shape;
        self.window.map_or((shape.height, shape.width), |w| w.size)
    }

    /// Resizes a region of the image, and makes the result the current image.
    pub(crate) fn resize(
        &mut self,
        from: Region,
        size: (usize, usize),
        filter: Interpolation,
    ) -> Result<(), String> {
        let window = self.take_window();
        let from = Region {
            top: from.top - window.top,
            left: from.left - window.left,
            ..from
        };
        let target = &mut self.back;
        self.resizer.run(&self.front, from, size, filter, target)?;
        self.swap();
        Ok(())
    }
}

/// Maximum size, in bytes, of the buffers that a thread keeps for reuse. Larger buffers are freed:
/// otherwise each thread would in the end hold buffers for the largest image that it has processed.
/// 6 MiB hold those of a photo of a megapixel that is decoded and resized; a larger image takes so long to decode that
/// allocating its buffers is negligible.
const KEPT_BYTES: usize = 6 << 20;

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
