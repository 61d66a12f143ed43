//! Decoding of PNG, WebP, GIF, BMP and TIFF by the `image` crate.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::gif::GifDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::tiff::TiffDecoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageFormat, ImageResult, Limits};

use super::decoder::{DecodeRequest, Decoder, EncodedHeader, MAX_DECODER_BYTES, check_size, rgb};
use super::raw_profile;
use crate::image::scratch::Scratch;

/// The decoder of all formats but JPEG.
pub(super) struct Other;

impl Decoder for Other {
    fn accepts(&self, bytes: &[u8]) -> bool {
        format_of(bytes).is_some()
    }

    fn header(&self, bytes: &[u8]) -> Result<EncodedHeader, String> {
        let (mut decoder, name) = open(bytes)?;
        let size = size(&*decoder)?;
        let orientation = orientation(&mut *decoder, name, bytes);
        let color = decoder.color_type();
        let samples = match color {
            ColorType::Rgb8 => 0,
            color => u64::from(color.bytes_per_pixel()),
        };
        // The decoders of GIF and WebP also hold an RGBA canvas, or planes of about the size of
        // such a canvas.
        let own = if matches!(name, "GIF" | "WebP") { 4 } else { 0 };
        Ok(EncodedHeader::new(size, orientation, samples + own))
    }

    fn decode(
        &self,
        request: &DecodeRequest<'_>,
        scratch: &mut Scratch,
    ) -> Result<Orientation, String> {
        let (bytes, target) = (request.bytes, &mut scratch.front);
        let (mut decoder, name) = open(bytes)?;
        let (height, width) = size(&*decoder)?;
        let broken = |e| format!("broken {name}: {e}");
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(MAX_DECODER_BYTES);
        decoder.set_limits(limits).map_err(broken)?;
        let orientation = orientation(&mut *decoder, name, bytes);
        let color = decoder.color_type();
        target.reshape(rgb(height, width));
        if color == ColorType::Rgb8 {
            decoder.read_image_boxed(&mut target.u8s).map_err(broken)?;
            return Ok(orientation);
        }
        let total = decoder.total_bytes();
        if total > MAX_DECODER_BYTES {
            return Err(format!(
                "broken {name}: {total} bytes of pixels are above the limit of {MAX_DECODER_BYTES}"
            ));
        }
        let mut samples = vec![0; total as usize];
        decoder.read_image_boxed(&mut samples).map_err(broken)?;
        to_rgb(&samples, color, &mut target.u8s)?;
        Ok(orientation)
    }
}

fn format_of(bytes: &[u8]) -> Option<ImageFormat> {
    image::guess_format(bytes)
        .ok()
        .filter(|format| name_of(*format).is_some())
}

const fn name_of(format: ImageFormat) -> Option<&'static str> {
    match format {
        ImageFormat::Png => Some("PNG"),
        ImageFormat::WebP => Some("WebP"),
        ImageFormat::Gif => Some("GIF"),
        ImageFormat::Bmp => Some("BMP"),
        ImageFormat::Tiff => Some("TIFF"),
        _ => None,
    }
}

type OpenImage<'a> = (Box<dyn ImageDecoder + 'a>, &'static str);

fn open(bytes: &[u8]) -> Result<OpenImage<'_>, String> {
    let format = format_of(bytes).ok_or("unknown image format")?;
    let name = name_of(format).unwrap_or("image");
    let reader = Cursor::new(bytes);
    let decoder: ImageResult<Box<dyn ImageDecoder>> = match format {
        ImageFormat::Png => {
            let mut limits = Limits::no_limits();
            limits.max_alloc = Some(MAX_DECODER_BYTES);
            PngDecoder::with_limits(reader, limits).map(|d| Box::new(d) as _)
        }
        ImageFormat::WebP => WebPDecoder::new(reader).map(|d| Box::new(d) as _),
        ImageFormat::Gif => GifDecoder::new(reader).map(|d| Box::new(d) as _),
        ImageFormat::Bmp => BmpDecoder::new(reader).map(|d| Box::new(d) as _),
        _ => TiffDecoder::new(reader).map(|d| Box::new(d) as _),
    };
    decoder
        .map(|d| (d, name))
        .map_err(|e| format!("broken {name}: {e}"))
}

fn size(decoder: &dyn ImageDecoder) -> Result<(usize, usize), String> {
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())
}

/// Returns the orientation from the format's own tag (TIFF), else from EXIF, else from EXIF in a
/// PNG text, else from XMP, in Pillow's order. Unreadable metadata is ignored, since the pixels are
/// still readable.
fn orientation(decoder: &mut dyn ImageDecoder, name: &str, bytes: &[u8]) -> Orientation {
    if name == "TIFF" {
        return decoder.orientation().unwrap_or(Orientation::NoTransforms);
    }
    let exif = decoder.exif_metadata().ok().flatten();
    let exif = exif.as_deref().and_then(|chunk| {
        // Some writers keep the prefix that EXIF has in a JPEG segment.
        let chunk = chunk.strip_prefix(b"Exif\0\0").unwrap_or(chunk);
        Orientation::from_exif_chunk(chunk)
    });
    let text = || (name == "PNG").then(|| raw_profile::orientation(bytes))?;
    let exif = exif.or_else(text);
    let found = exif.or_else(|| of_xmp(&decoder.xmp_metadata().ok().flatten()?));
    found.unwrap_or(Orientation::NoTransforms)
}

/// Returns the orientation in an XMP packet: the digit after `tiff:Orientation`, which is an
/// attribute or an element.
fn of_xmp(packet: &[u8]) -> Option<Orientation> {
    const TAG: &[u8] = b"tiff:Orientation";
    let at = packet.windows(TAG.len()).position(|w| w == TAG)?;
    match packet.get(at + TAG.len()..)? {
        [b'=', b'"', digit @ b'1'..=b'8', ..] | [b'>', digit @ b'1'..=b'8', ..] => {
            Orientation::from_exif(digit - b'0')
        }
        _ => None,
    }
}

/// Converts samples of any color type to RGB bytes: repeats gray, drops alpha, keeps the high byte
/// of 16 bits, and scales floats from 0 to 1.
fn to_rgb(samples: &[u8], color: ColorType, out: &mut [u8]) -> Result<(), String> {
    let pixels = out.chunks_exact_mut(3);
    let wide = |pair: &[u8]| (u16::from_ne_bytes([pair[0], pair[1]]) >> 8) as u8;
    let real = |v: &[u8]| {
        (f32::from_ne_bytes([v[0], v[1], v[2], v[3]]).clamp(0.0, 1.0) * 255.0 + 0.5) as u8
    };
    match color {
        ColorType::L8 => pixels.zip(samples).for_each(|(p, v)| p.fill(*v)),
        ColorType::La8 => pixels
            .zip(samples.chunks_exact(2))
            .for_each(|(p, v)| p.fill(v[0])),
        ColorType::Rgb8 => out.copy_from_slice(samples),
        ColorType::Rgba8 => {
            pixels
                .zip(samples.chunks_exact(4))
                .for_each(|(p, v)| p.copy_from_slice(&v[..3]));
        }
        ColorType::L16 => pixels
            .zip(samples.chunks_exact(2))
            .for_each(|(p, v)| p.fill(wide(v))),
        ColorType::La16 => pixels
            .zip(samples.chunks_exact(4))
            .for_each(|(p, v)| p.fill(wide(v))),
        ColorType::Rgb16 => pixels.zip(samples.chunks_exact(6)).for_each(|(p, v)| {
            p.copy_from_slice(&[wide(v), wide(&v[2..]), wide(&v[4..])]);
        }),
        ColorType::Rgba16 => pixels.zip(samples.chunks_exact(8)).for_each(|(p, v)| {
            p.copy_from_slice(&[wide(v), wide(&v[2..]), wide(&v[4..])]);
        }),
        ColorType::Rgb32F => pixels.zip(samples.chunks_exact(12)).for_each(|(p, v)| {
            p.copy_from_slice(&[real(v), real(&v[4..]), real(&v[8..])]);
        }),
        ColorType::Rgba32F => pixels.zip(samples.chunks_exact(16)).for_each(|(p, v)| {
            p.copy_from_slice(&[real(v), real(&v[4..]), real(&v[8..])]);
        }),
        _ => return Err(format!("unsupported color type {color:?}")),
    }
    Ok(())
}
