//! Encoded images: which decoder reads a format, and what every decoder must keep to.
//!
//! | Format | Decoder | Notes |
//! |---|---|---|
//! | JPEG | `zune-jpeg` | gray, YCbCr, RGB, CMYK and YCCK; baseline and progressive |
//! | JPEG below 16 pixels in a direction | `jpeg-decoder` after `zune-jpeg` | subsampled chroma ends at the border |
//! | PNG, WebP, GIF, BMP, TIFF | `image` | first frame or page |
//!
//! Luma alone is given by the JPEG decoders. None reads a part of an image without the rest, and none
//! scales while it decodes: `jpeg-decoder` could, but at one half takes longer than `zune-jpeg` for the
//! whole.
//!
//! Orientation (EXIF, TIFF tag) is applied, alpha is dropped without blending, 16-bit samples keep
//! their high byte. Dimensions are checked in the header, before pixels are allocated.

mod jpeg;
mod other;
mod raw_profile;
mod small_jpeg;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::metadata::Orientation;

use super::kernel::geometry::{flip_horizontal, flip_vertical, transpose};
use super::op::Mode;
use super::pixels::{Pixels, Scratch, Shape};
use crate::tensor::{Dtype, Layout};

/// Most pixels of an image: Pillow's limit before it calls a file a decompression bomb
/// (`2 * Image.MAX_IMAGE_PIXELS`). A greater one is an error of its row.
pub const MAX_PIXELS: u64 = 178_956_970;

/// Most bytes that a decoder of the `image` crate may allocate: 16-bit RGBA at [`MAX_PIXELS`].
pub const MAX_DECODER_BYTES: u64 = MAX_PIXELS * 8;

/// What a decoder can do.
pub(crate) trait Decoder: Sync {
    /// Whether these bytes begin like a file of this decoder's.
    fn accepts(&self, bytes: &[u8]) -> bool;
    /// Reads the header alone.
    fn header(&self, bytes: &[u8]) -> Result<Header, String>;
    /// Decodes to RGB bytes in height, width, channels order as stored; returns the orientation to
    /// apply. `target` has been given its shape on return.
    fn decode(&self, bytes: &[u8], target: &mut Pixels) -> Result<Orientation, String>;
    /// As [`decode`](Self::decode), to the luma that the file itself holds; `None` where it holds none,
    /// or the decoder cannot give it without the colors.
    fn decode_luma(
        &self,
        _bytes: &[u8],
        _target: &mut Pixels,
    ) -> Option<Result<Orientation, String>> {
        None
    }
}

/// Decoders in order of preference.
const DECODERS: [&dyn Decoder; 3] = [&small_jpeg::SmallJpeg, &jpeg::Jpeg, &other::Other];

thread_local! {
    /// Set while a decoder runs whose panics become errors of the row.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a decoder whose panics are caught and reported as a row's error:
/// a panic hook has nothing to say of those.
pub fn panics_are_caught() -> bool {
    GUARDED.get()
}

/// Runs code that may panic on hostile input; the panic becomes an error.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    GUARDED.set(false);
    result.unwrap_or_else(|panic| Err(format!("the decoder failed: {}", panic_text(&*panic))))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown reason")
}

fn decoder_of(bytes: &[u8]) -> Result<&'static dyn Decoder, String> {
    if bytes.is_empty() {
        return Err("the image is empty (0 bytes)".to_owned());
    }
    DECODERS
        .iter()
        .copied()
        .find(|d| d.accepts(bytes))
        .ok_or_else(|| {
            let head: Vec<String> = bytes.iter().take(4).map(|b| format!("{b:02x}")).collect();
            format!(
                "no JPEG, PNG, WebP, GIF, BMP or TIFF: the {} bytes begin with {}",
                bytes.len(),
                head.join(" ")
            )
        })
}

/// Checks dimensions of a header before anything of that size is allocated.
fn check_size(width: u64, height: u64) -> Result<(usize, usize), String> {
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

/// Whether an orientation exchanges rows and columns.
const fn is_turned(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    )
}

/// What the header of an image says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Rows as shown (orientation applied).
    pub(crate) height: usize,
    /// Columns as shown.
    pub(crate) width: usize,
    /// Bytes that decoding takes at most, the pixels included.
    pub(crate) decoding: u64,
}

impl Header {
    /// The header of an image of this stored height and width, whose decoder takes `extra` bytes a pixel beside
    /// those of the decoded one.
    fn new((height, width): (usize, usize), orientation: Orientation, extra: u64) -> Self {
        let is_turned = is_turned(orientation);
        let pixels = height as u64 * width as u64;
        // The decoder has given its own memory back when a turned image gets a second buffer.
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
}

/// Reads the header of an image.
pub(crate) fn header(bytes: &[u8]) -> Result<Header, String> {
    guarded(|| decoder_of(bytes)?.header(bytes))
}

/// Decodes into `scratch.front`.
pub(crate) fn decode(bytes: &[u8], mode: Mode, scratch: &mut Scratch) -> Result<(), String> {
    let front = &mut scratch.front;
    let orientation = guarded(|| {
        let decoder = decoder_of(bytes)?;
        let luma = match mode {
            Mode::Luma => decoder.decode_luma(bytes, front),
            Mode::Rgb | Mode::Gray => None,
        };
        luma.unwrap_or_else(|| decoder.decode(bytes, front))
    })?;
    orient(scratch, orientation);
    if mode != Mode::Rgb && scratch.front.shape.channels == 3 {
        gray(&scratch.front, &mut scratch.back);
        scratch.swap();
    }
    Ok(())
}

fn orient(scratch: &mut Scratch, orientation: Orientation) {
    if is_turned(orientation) {
        transpose(&scratch.front, &mut scratch.back);
        scratch.swap();
    }
    // After the exchange of rows and columns, each orientation is at most two mirrorings.
    let (horizontal, vertical) = match orientation {
        Orientation::NoTransforms | Orientation::Rotate90FlipH => (false, false),
        Orientation::FlipHorizontal | Orientation::Rotate90 => (true, false),
        Orientation::FlipVertical | Orientation::Rotate270 => (false, true),
        Orientation::Rotate180 | Orientation::Rotate270FlipH => (true, true),
    };
    if horizontal {
        flip_horizontal(&mut scratch.front);
    }
    if vertical {
        flip_vertical(&mut scratch.front);
    }
}

/// Luma by ITU-R BT.601 in Pillow's fixed point (`Image.convert("L")`).
fn gray(source: &Pixels, target: &mut Pixels) {
    target.reshape(Shape {
        channels: 1,
        ..source.shape
    });
    for (out, rgb) in target.u8s.iter_mut().zip(source.u8s.chunks_exact(3)) {
        let [r, g, b] = [rgb[0], rgb[1], rgb[2]].map(u32::from);
        *out = ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8;
    }
}

/// The shape of decoded RGB.
const fn rgb(height: usize, width: usize) -> Shape {
    Shape {
        height,
        width,
        channels: 3,
        dtype: Dtype::U8,
        layout: Layout::Hwc,
    }
}

#[cfg(test)]
mod tests;
