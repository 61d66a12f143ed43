//! JPEG decoding by `zune-jpeg`.

use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use super::decoder::{Decoder, EncodedHeader, check_size, rgb};
use crate::image::pixels::{PixelShape, Pixels};

/// The JPEG decoder.
pub(super) struct Jpeg;

const START: &[u8] = &[0xff, 0xd8];
const END: [u8; 2] = [0xff, 0xd9];
const SCAN: u8 = 0xda;
const PROGRESSIVE: u8 = 0xc2;

impl Decoder for Jpeg {
    fn accepts(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(START)
    }

    fn header(&self, bytes: &[u8]) -> Result<EncodedHeader, String> {
        let mut decoder = open(bytes, false, ColorSpace::RGB);
        decoder
            .decode_headers()
            .map_err(|e| format!("broken JPEG: {e}"))?;
        let progressive = segments(bytes).any(|(kind, _)| kind == PROGRESSIVE);
        // A progressive file keeps three 16-bit coefficients per pixel between scans.
        let extra = if progressive { 6 } else { 0 };
        Ok(EncodedHeader::new(
            size(&decoder)?,
            orientation(&decoder),
            extra,
        ))
    }

    fn decode(&self, bytes: &[u8], target: &mut Pixels) -> Result<Orientation, String> {
        decode_to(ColorSpace::RGB, bytes, target)
    }

    fn decode_luma(
        &self,
        bytes: &[u8],
        target: &mut Pixels,
    ) -> Option<Result<Orientation, String>> {
        let mut decoder = open(bytes, false, ColorSpace::Luma);
        decoder.decode_headers().ok()?;
        let has_luma = matches!(
            decoder.input_colorspace(),
            Some(ColorSpace::YCbCr | ColorSpace::Luma)
        );
        has_luma.then(|| decode_to(ColorSpace::Luma, bytes, target))
    }
}

fn decode_to(colors: ColorSpace, bytes: &[u8], target: &mut Pixels) -> Result<Orientation, String> {
    if !has_end(bytes) {
        return Err("the JPEG is truncated (it has no end marker)".to_owned());
    }
    match decode(bytes, true, colors, target) {
        Ok(orientation) => Ok(orientation),
        Err(error) if is_harmless(&error) => decode(bytes, false, colors, target),
        Err(error) => Err(error),
    }
    .map_err(|error| match error {
        JpegFault::Decoder(error) => format!("broken JPEG: {error}"),
        JpegFault::Size(error) => error,
    })
}

/// A failure to decode a JPEG file.
enum JpegFault {
    Decoder(DecodeErrors),
    Size(String),
}

/// Decodes a file. In strict mode, a corrupt scan is an error; otherwise, corrupt data is skipped.
fn decode(
    bytes: &[u8],
    strict: bool,
    colors: ColorSpace,
    target: &mut Pixels,
) -> Result<Orientation, JpegFault> {
    let mut decoder = open(bytes, strict, colors);
    decoder.decode_headers().map_err(JpegFault::Decoder)?;
    let (height, width) = size(&decoder).map_err(JpegFault::Size)?;
    target.reshape(PixelShape {
        channels: colors.num_components(),
        ..rgb(height, width)
    });
    decoder
        .decode_into(&mut target.u8s)
        .map_err(JpegFault::Decoder)?;
    Ok(orientation(&decoder))
}

/// True if an error of strict mode concerns a harmless irregularity, as in files of cameras and
/// editors: stray bytes between segments, or further images after the first one.
fn is_harmless(error: &JpegFault) -> bool {
    match error {
        JpegFault::Decoder(DecodeErrors::ExhaustedData) => true,
        JpegFault::Decoder(error) => format!("{error}").contains("Extra bytes between headers"),
        JpegFault::Size(_) => false,
    }
}

fn open(bytes: &[u8], strict: bool, colors: ColorSpace) -> JpegDecoder<ZCursor<&[u8]>> {
    let options = DecoderOptions::new_fast()
        .set_strict_mode(strict)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(colors);
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

/// True if an end marker follows the first scan header, so that the file is not truncated. Missing
/// data would decode to gray, and Pillow refuses such files, too. (The end marker of a thumbnail
/// precedes the scan.)
fn has_end(bytes: &[u8]) -> bool {
    if bytes.ends_with(&END) {
        return true;
    }
    let after = scan_start(bytes).unwrap_or(bytes.len());
    bytes[after..].windows(2).rev().any(|pair| pair == END)
}

/// Returns the byte offset of the first start-of-scan marker.
fn scan_start(bytes: &[u8]) -> Option<usize> {
    segments(bytes).find_map(|(kind, marker)| (kind == SCAN).then_some(marker))
}

/// Returns the kind and the byte offset of each segment marker, up to the marker of the first scan.
pub(super) fn segments(bytes: &[u8]) -> impl Iterator<Item = (u8, usize)> {
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
