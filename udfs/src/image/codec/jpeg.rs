//! JPEG decoding by `forebay-jpeg`, which decodes only the rectangle that is read.

use forebay_jpeg::{ColorModel, JpegHeader, PixelFormat, PixelRegion};
use image::metadata::Orientation;

use super::decoder::{DecodeRequest, Decoder, EncodedHeader, check_size, rgb};
use crate::image::call::Rectangle;
use crate::image::pixels::PixelShape;
use crate::image::scratch::{Scratch, Window};
use crate::image::values::Mode;

/// The JPEG decoder.
pub(super) struct Jpeg;

const START: &[u8] = &[0xff, 0xd8];
const END: [u8; 2] = [0xff, 0xd9];
const SCAN: u8 = 0xda;
const APP1: u8 = 0xe1;
const EXIF: &[u8] = b"Exif\0\0";

impl Decoder for Jpeg {
    fn accepts(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(START)
    }

    fn header(&self, bytes: &[u8]) -> Result<EncodedHeader, String> {
        let header = open(bytes)?;
        let size = check_size(header.width() as u64, header.height() as u64)?;
        let own = EncodedHeader::new(size, orientation(bytes), 0);
        Ok(own.with_buffers(header.memory() + bytes.len() as u64))
    }

    fn decode(
        &self,
        request: &DecodeRequest<'_>,
        scratch: &mut Scratch,
    ) -> Result<Orientation, String> {
        let bytes = request.bytes;
        let header = open(bytes)?;
        let (height, width) = check_size(header.width() as u64, header.height() as u64)?;
        check_end(bytes)?;
        let orientation = orientation(bytes);
        let mut region = PixelRegion::whole(&header);
        if orientation == Orientation::NoTransforms && !request.decoding.is_strict {
            let read = (request.reads)((height, width));
            let part = read.and_then(|r| within(r, (height, width)));
            if let Some(part) = part.filter(|part| *part != region) {
                region = part;
                scratch.window = Some(Window {
                    size: (height, width),
                    top: region.y,
                    left: region.x,
                });
            }
        }
        let stores_luma = matches!(header.color(), ColorModel::Gray | ColorModel::YCbCr);
        let (format, channels) = if request.decoding.mode == Mode::Luma && stores_luma {
            (PixelFormat::Luma, 1)
        } else {
            (PixelFormat::Rgb, 3)
        };
        let target = &mut scratch.front;
        target.reshape(PixelShape {
            channels,
            ..rgb(region.height, region.width)
        });
        let decoder = &mut scratch.jpeg.0;
        let decoded = decoder.decode(bytes, &header, region, format, None, &mut target.u8s);
        let decoded = decoded.map_err(|e| e.to_string())?;
        if request.decoding.is_strict && decoded.is_damaged {
            return Err("the JPEG's coded data is damaged, and decoding is 'strict'".to_owned());
        }
        Ok(orientation)
    }
}

/// Reads the headers of a file.
fn open(bytes: &[u8]) -> Result<JpegHeader, String> {
    JpegHeader::read(bytes).map_err(|e| e.to_string())
}

/// Returns the part of a rectangle that is in the image; `None` if that is nothing.
fn within(read: Rectangle, (height, width): (usize, usize)) -> Option<PixelRegion> {
    let clip = |start: i64, length: usize, limit: usize| {
        let end = start.saturating_add(length as i64).min(limit as i64);
        let start = start.max(0);
        (start < end).then_some((start as usize, (end - start) as usize))
    };
    let (y, height) = clip(read.top, read.height, height)?;
    let (x, width) = clip(read.left, read.width, width)?;
    Some(PixelRegion {
        x,
        y,
        width,
        height,
    })
}

/// Returns the orientation of the first EXIF segment.
fn orientation(bytes: &[u8]) -> Orientation {
    let exif = segments(bytes).find_map(|(kind, marker)| {
        let length = bytes.get(marker + 2..marker + 4)?;
        let end = marker + 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
        let body = bytes.get(marker + 4..end).filter(|_| kind == APP1)?;
        body.strip_prefix(EXIF)
    });
    exif.and_then(Orientation::from_exif_chunk)
        .unwrap_or(Orientation::NoTransforms)
}

/// Fails if no end marker follows the first scan header: the file is truncated. Missing data would
/// decode to gray, and Pillow refuses such files, too. (The end marker of a thumbnail precedes the
/// scan.)
fn check_end(bytes: &[u8]) -> Result<(), String> {
    if bytes.ends_with(&END) {
        return Ok(());
    }
    let after = scan_start(bytes).unwrap_or(bytes.len());
    if bytes[after..].windows(2).rev().any(|pair| pair == END) {
        return Ok(());
    }
    Err("the JPEG is truncated (it has no end marker)".to_owned())
}

/// Returns the byte offset of the first start-of-scan marker.
fn scan_start(bytes: &[u8]) -> Option<usize> {
    segments(bytes).find_map(|(kind, marker)| (kind == SCAN).then_some(marker))
}

/// Returns the kind and the byte offset of each segment marker, up to the marker of the first scan.
fn segments(bytes: &[u8]) -> impl Iterator<Item = (u8, usize)> {
    let mut next = Some(START.len());
    std::iter::from_fn(move || {
        let mut at = next?;
        loop {
            let marker = at + bytes.get(at..)?.iter().position(|&b| b == 0xff)?;
            let kind = *bytes.get(marker + 1)?;
            // Fill bytes, and markers without a length field, are skipped.
            if matches!(kind, 0xff | 0x00 | 0x01 | 0xd0..=0xd9) {
                at = marker + 1;
                continue;
            }
            next = if kind == SCAN {
                None
            } else {
                let length = bytes.get(marker + 2..marker + 4)?;
                Some(marker + 2 + usize::from(u16::from_be_bytes([length[0], length[1]])))
            };
            return Some((kind, marker));
        }
    })
}
