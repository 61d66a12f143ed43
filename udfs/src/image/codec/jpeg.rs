//! JPEG by `zune-jpeg`.

use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_jpeg::JpegDecoder;

use super::{Decoder, Pixels, check_size, is_turned, rgb};
use crate::simd::Simd;

/// The JPEG decoder.
pub(super) struct Jpeg;

const START: &[u8] = &[0xff, 0xd8];
const END: [u8; 2] = [0xff, 0xd9];

impl Decoder for Jpeg {
    fn accepts(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(START)
    }

    fn dimensions(&self, bytes: &[u8]) -> Result<(usize, usize), String> {
        let mut decoder = open(bytes);
        decoder
            .decode_headers()
            .map_err(|e| format!("broken JPEG: {e}"))?;
        let (height, width) = size(&decoder)?;
        Ok(if is_turned(orientation(&decoder)) {
            (width, height)
        } else {
            (height, width)
        })
    }

    fn decode(&self, bytes: &[u8], target: &mut Pixels) -> Result<Orientation, String> {
        if !has_end(bytes) {
            return Err("the JPEG is truncated (it has no end marker)".to_owned());
        }
        let mut decoder = open(bytes);
        decoder
            .decode_headers()
            .map_err(|e| format!("broken JPEG: {e}"))?;
        let (height, width) = size(&decoder)?;
        target.reshape(rgb(height, width));
        decoder
            .decode_into(&mut target.u8s)
            .map_err(|e| format!("broken JPEG: {e}"))?;
        Ok(orientation(&decoder))
    }
}

fn open(bytes: &[u8]) -> JpegDecoder<ZCursor<&[u8]>> {
    // Not strict: libjpeg, and so Pillow, reads on over small faults too.
    let options = Simd::current()
        .jpeg_options()
        .set_strict_mode(false)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

fn size(decoder: &JpegDecoder<ZCursor<&[u8]>>) -> Result<(usize, usize), String> {
    let (width, height) = decoder
        .dimensions()
        .ok_or("broken JPEG: it has no frame header")?;
    check_size(width as u64, height as u64)
}

fn orientation(decoder: &JpegDecoder<ZCursor<&[u8]>>) -> Orientation {
    let found = decoder
        .exif()
        .and_then(|exif| Orientation::from_exif_chunk(exif));
    found.unwrap_or(Orientation::NoTransforms)
}

/// Whether an end marker follows the first scan header. Data cut off earlier would decode to gray,
/// which Pillow refuses as truncated; a thumbnail's end marker lies before the scan.
fn has_end(bytes: &[u8]) -> bool {
    if bytes.ends_with(&END) {
        return true;
    }
    let after = scan_start(bytes).unwrap_or(bytes.len());
    bytes[after..].windows(2).rev().any(|pair| pair == END)
}

/// Offset of the first start-of-scan marker, by walking the segments.
fn scan_start(bytes: &[u8]) -> Option<usize> {
    let mut at = START.len();
    loop {
        let marker = at + bytes.get(at..)?.iter().position(|&b| b == 0xff)?;
        let kind = *bytes.get(marker + 1)?;
        match kind {
            0xda => return Some(marker),
            // Fill bytes, and markers without a length.
            0xff | 0x00 | 0x01 | 0xd0..=0xd9 => at = marker + 1,
            _ => {
                let length = bytes.get(marker + 2..marker + 4)?;
                at = marker + 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            }
        }
    }
}
