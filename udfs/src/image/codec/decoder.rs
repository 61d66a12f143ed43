//! The decoder interface, and helpers that decoders share.

use image::metadata::Orientation;

use crate::image::call::Rectangle;
use crate::image::pixels::{MAX_PIXELS, PixelShape};
use crate::image::scratch::Scratch;
use crate::image::values::Decoding;
use crate::seek_index_store::SeekIndexAccess;
use crate::tensor::{Dtype, ImageLayout};

/// Maximum memory, in bytes, that a decoder of the `image` crate may allocate for a row; a row that
/// needs more fails. The limit is the size of a 16-bit RGBA image of [`MAX_PIXELS`] pixels.
pub const MAX_DECODER_BYTES: u64 = MAX_PIXELS * 8;

/// A file to decode, and what the chain of functions after decoding needs of it.
pub(crate) struct DecodeRequest<'a> {
    pub(crate) bytes: &'a [u8],
    /// The color mode and strictness. A decoder may return colors for every mode.
    pub(crate) decoding: Decoding,
    /// Returns the rectangle that the functions read of an image of this height and width; `None`
    /// for all of it. A decoder may return more.
    pub(crate) reads: &'a dyn Fn((usize, usize)) -> Option<Rectangle>,
    /// The seek indexes of JPEG files; `None` to decode without.
    pub(crate) indexes: Option<&'a SeekIndexAccess>,
}

/// A decoder of one or more file formats.
pub(super) trait Decoder: Sync {
    /// True if the decoder decodes the file, which depends on the file's headers only.
    fn accepts(&self, bytes: &[u8]) -> bool;
    /// Reads only the header of a file.
    fn header(&self, bytes: &[u8]) -> Result<EncodedHeader, String>;
    /// Decodes a file into `scratch.front`, as bytes in height, width, channels order and in the
    /// stored orientation, and sets the shape. The channels are RGB, or luma in the modes for it.
    /// Returns the orientation that the caller must apply.
    ///
    /// A decoder that decodes less than the image sets `scratch.window`.
    fn decode(
        &self,
        request: &DecodeRequest<'_>,
        scratch: &mut Scratch,
    ) -> Result<Orientation, String>;
}

/// Checks the dimensions of a header before anything of that size is allocated.
pub(super) fn check_size(width: u64, height: u64) -> Result<(usize, usize), String> {
    if width == 0 || height == 0 {
        return Err(format!("the image has no pixels ({width} x {height})"));
    }
    match width.checked_mul(height) {
        Some(pixels) if pixels <= MAX_PIXELS => Ok((height as usize, width as usize)),
        _ => Err(format!(
            "the image of {width} x {height} is above the limit of {MAX_PIXELS} pixels"
        )),
    }
}

/// True if an orientation swaps rows and columns.
pub(super) const fn is_turned(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    )
}

/// The size of an image, read from the header of its file, and the memory for decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EncodedHeader {
    /// Number of rows as displayed, with the orientation applied.
    pub(crate) height: usize,
    /// Number of columns as displayed, with the orientation applied.
    pub(crate) width: usize,
    /// Upper bound on the memory that decoding takes, in bytes, including the pixels.
    pub(crate) decoding: u64,
}

impl EncodedHeader {
    /// Creates the header of an image of this stored height and width. During decoding, the decoder
    /// holds `extra` bytes per pixel in addition to the decoded pixels.
    pub(super) fn new(
        (height, width): (usize, usize),
        orientation: Orientation,
        extra: u64,
    ) -> Self {
        let is_turned = is_turned(orientation);
        let pixels = height as u64 * width as u64;
        // The decoder frees its own memory before a turned image needs a second buffer.
        let copies = if is_turned { 3 } else { 0 };
        let (height, width) = if is_turned {
            (width, height)
        } else {
            (height, width)
        };
        Self {
            height,
            width,
            decoding: pixels.saturating_mul(3 + extra.max(copies)),
        }
    }

    /// Adds memory that the decoder holds beside the pixels, in bytes.
    pub(super) const fn with_buffers(self, bytes: u64) -> Self {
        Self {
            decoding: self.decoding.saturating_add(bytes),
            ..self
        }
    }
}

/// Returns the shape of decoded RGB bytes of this height and width.
pub(super) const fn rgb(height: usize, width: usize) -> PixelShape {
    PixelShape {
        height,
        width,
        channels: 3,
        dtype: Dtype::U8,
        layout: ImageLayout::Hwc,
    }
}
