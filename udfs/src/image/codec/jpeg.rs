//! JPEG decoding by `forebay-jpeg`, which decodes only the rectangle that is read.

use forebay_jpeg::{ColorModel, JpegHeader, PixelFormat, PixelRegion};
use image::metadata::Orientation;

use super::decoder::{DecodeRequest, Decoder, EncodedHeader, check_size, rgb};
use crate::image::call::Rectangle;
use crate::image::pixels::PixelShape;
use crate::image::scratch::{JpegTool, Scratch, Window};
use crate::image::values::Mode;

/// The JPEG decoder.
pub(super) struct Jpeg;

const START: &[u8] = &[0xff, 0xd8];

impl Decoder for Jpeg {
    fn accepts(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(START)
    }

    fn header(&self, bytes: &[u8]) -> Result<EncodedHeader, String> {
        let header = open(bytes)?;
        let size = check_size(header.width() as u64, header.height() as u64)?;
        let own = EncodedHeader::new(size, orientation(&header, bytes), 0);
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
        if !header.has_end(bytes) {
            // Missing data would decode to gray, and Pillow refuses such files, too.
            return Err("the JPEG is truncated (it has no end marker)".to_owned());
        }
        let orientation = orientation(&header, bytes);
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
        // An index saves nothing if the whole image is decoded.
        let indexes = request.indexes.filter(|_| scratch.window.is_some());
        let JpegTool { decoder, index } = &mut scratch.jpeg;
        let mut open = indexes.and_then(|indexes| indexes.open(bytes, &header, index));
        let index = open.as_mut().map(|open| &mut *open.index);
        let decoded = decoder.decode(bytes, &header, region, format, index, &mut target.u8s);
        let decoded = decoded.map_err(|e| e.to_string())?;
        if let Some(open) = open {
            open.close();
        }
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

/// Returns the orientation that the EXIF data names.
fn orientation(header: &JpegHeader, bytes: &[u8]) -> Orientation {
    let exif = header.exif(bytes);
    exif.and_then(Orientation::from_exif_chunk)
        .unwrap_or(Orientation::NoTransforms)
}
