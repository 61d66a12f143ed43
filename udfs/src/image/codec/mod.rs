//! Decoding of images: the decoder of each format, and the rules that all decoders follow.
//!
//! | Format | Decoder | Notes |
//! |---|---|---|
//! | JPEG | `forebay-jpeg` | gray, YCbCr, RGB, CMYK and YCCK; baseline and progressive; only the rectangle that is read |
//! | PNG, WebP, GIF, BMP, TIFF | `image` | first frame or page |
//!
//! Only the JPEG decoder can return luma alone, or a part of the image. No decoder scales an image
//! during decoding.
//!
//! Orientation (EXIF, TIFF tag) is applied, alpha is dropped without blending, and 16-bit samples
//! keep their high byte. Dimensions are checked in the header, before pixels are allocated.

mod decoder;
mod jpeg;
mod other;
mod raw_profile;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::metadata::Orientation;

pub use self::decoder::MAX_DECODER_BYTES;
pub(crate) use self::decoder::{DecodeRequest, EncodedHeader};
use self::decoder::{Decoder, is_turned};
use super::kernel::geometry::{flip_horizontal, flip_vertical, transpose};
use super::pixels::{PixelShape, Pixels};
use super::scratch::Scratch;
#[cfg(test)]
use super::values::Decoding;
use super::values::Mode;

/// All decoders. The first decoder that accepts a file decodes the file.
const DECODERS: [&dyn Decoder; 2] = [&jpeg::Jpeg, &other::Other];

thread_local! {
    /// True while this thread runs a decoder whose panics become errors of the row.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread is inside a decoder whose panics are reported as errors of the row. A panic
/// hook should print nothing while this is true.
pub fn panics_are_caught() -> bool {
    GUARDED.get()
}

/// Runs code that may panic on hostile input, and converts a panic to an error.
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
                "not a JPEG, PNG, WebP, GIF, BMP or TIFF image: the {} bytes begin with {}",
                bytes.len(),
                head.join(" ")
            )
        })
}

/// Reads the header of an image.
pub(crate) fn header(bytes: &[u8]) -> Result<EncodedHeader, String> {
    guarded(|| decoder_of(bytes)?.header(bytes))
}

/// Decodes an encoded image, or the part of it that is read, into `scratch.front`.
pub(crate) fn decode(request: &DecodeRequest<'_>, scratch: &mut Scratch) -> Result<(), String> {
    scratch.window = None;
    let orientation = guarded(|| decoder_of(request.bytes)?.decode(request, scratch))?;
    orient(scratch, orientation);
    if request.decoding.mode != Mode::Rgb && scratch.front.shape.channels == 3 {
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
    // After swapping rows and columns, each orientation is at most two mirrorings.
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

/// Computes luma by ITU-R BT.601 in Pillow's fixed point (`Image.convert("L")`).
fn gray(source: &Pixels, target: &mut Pixels) {
    target.reshape(PixelShape {
        channels: 1,
        ..source.shape
    });
    for (out, rgb) in target.u8s.iter_mut().zip(source.u8s.chunks_exact(3)) {
        let [r, g, b] = [rgb[0], rgb[1], rgb[2]].map(u32::from);
        *out = ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8;
    }
}

/// Decodes the whole image in a mode.
#[cfg(test)]
pub(crate) fn decode_whole(bytes: &[u8], mode: Mode, scratch: &mut Scratch) -> Result<(), String> {
    let decoding = Decoding {
        mode,
        is_strict: false,
    };
    let request = DecodeRequest {
        bytes,
        decoding,
        reads: &|_| None,
        indexes: None,
    };
    decode(&request, scratch)
}

#[cfg(test)]
mod tests;
