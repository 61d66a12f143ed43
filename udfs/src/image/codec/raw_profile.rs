//! EXIF in PNG text: "raw profiles", which ImageMagick wrote before PNG had an EXIF chunk.
//!
//! The text under the keyword `Raw profile type exif` (or `APP1`) consists of a line break, the
//! profile's name, its length in bytes, and the bytes in hexadecimal on several lines.

use std::io::Read;

use flate2::read::ZlibDecoder;
use image::metadata::Orientation;

/// Maximum length, in bytes, of a text; a longer text is ignored. A JPEG segment with EXIF has less
/// than 64 KiB, and each byte of EXIF takes two digits of the text, plus line breaks.
const MAX_TEXT: usize = 256 << 10;

const SIGNATURE: usize = 8;

/// The keywords of raw profiles, in the order in which a file is searched.
const KEYWORDS: [&[u8]; 2] = [b"Raw profile type exif", b"Raw profile type APP1"];

/// Returns the orientation in a raw profile of a PNG file. Chunks after the pixels are searched,
/// too.
pub(super) fn orientation(png: &[u8]) -> Option<Orientation> {
    KEYWORDS.into_iter().find_map(|keyword| {
        let mut profiles = chunks(png).filter_map(|(kind, data)| {
            let rest = data.strip_prefix(keyword)?.strip_prefix(b"\0")?;
            exif(&text(kind, rest)?)
        });
        profiles.find_map(|exif| Orientation::from_exif_chunk(exif.strip_prefix(b"Exif\0\0")?))
    })
}

/// Returns the kind and data of each chunk.
fn chunks(png: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = png.get(SIGNATURE..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let (kind, after) = after.split_at_checked(4)?;
        let (data, after) = after.split_at_checked(length)?;
        // Skips the chunk's checksum of four bytes.
        rest = after.get(4..).unwrap_or_default();
        Some((kind, data))
    })
}

/// Returns the text of a chunk, given the data after the chunk's keyword and zero byte.
fn text(kind: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let (compressed, text) = match (kind, rest) {
        (b"tEXt", text) => (false, text),
        (b"zTXt", [0, text @ ..]) => (true, text),
        (b"iTXt", [compressed @ (0 | 1), 0, text @ ..]) => {
            // Skips the language and the translated keyword, each ended by a zero byte.
            (*compressed == 1, text.splitn(3, |b| *b == 0).nth(2)?)
        }
        _ => return None,
    };
    if !compressed {
        return (text.len() <= MAX_TEXT).then(|| text.to_vec());
    }
    let mut out = Vec::new();
    let limit = MAX_TEXT as u64 + 1;
    ZlibDecoder::new(text)
        .take(limit)
        .read_to_end(&mut out)
        .ok()?;
    (out.len() <= MAX_TEXT).then_some(out)
}

/// Decodes the hexadecimal bytes of a profile, which start at the fourth line of the text.
fn exif(text: &[u8]) -> Option<Vec<u8>> {
    let lines = text.splitn(4, |b| *b == b'\n').nth(3)?;
    let mut digits = lines
        .iter()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| char::from(*b).to_digit(16));
    let mut bytes = Vec::with_capacity(lines.len() / 2);
    while let Some(high) = digits.next() {
        bytes.push((high? << 4 | digits.next()??) as u8);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    /// EXIF with only the orientation tag, as ImageMagick writes it.
    const PROFILE: &[u8] = b"\nexif\n      32\n4578696600004d4d002a000000080001011200030000\n\
        0001000600000000000A\n";

    /// Returns a PNG file of one chunk, with 0 as the chunk's checksum. Only the pixel decoder
    /// verifies checksums.
    fn png(kind: &[u8], data: &[&[u8]]) -> Vec<u8> {
        let data = data.concat();
        let length = (data.len() as u32).to_be_bytes();
        [b"\x89PNG\r\n\x1a\n", &length[..], kind, &data, &[0; 4]].concat()
    }

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn profiles_are_read_from_every_kind_of_text() {
        let packed = compressed(PROFILE);
        for keyword in KEYWORDS {
            for file in [
                png(b"tEXt", &[keyword, b"\0", PROFILE]),
                png(b"zTXt", &[keyword, b"\0\0", &packed]),
                png(b"iTXt", &[keyword, b"\0\0\0en\0key\0", PROFILE]),
                png(b"iTXt", &[keyword, b"\0\x01\0\0\0", &packed]),
            ] {
                assert_eq!(orientation(&file), Some(Orientation::Rotate90));
                // A file truncated anywhere has no orientation (the last four bytes are the
                // checksum).
                for end in 0..file.len() - 4 {
                    assert_eq!(orientation(&file[..end]), None, "{end}");
                }
            }
        }
    }

    #[test]
    fn other_and_oversized_texts_say_nothing() {
        let long = [PROFILE, &vec![b'\n'; MAX_TEXT]].concat();
        let keyword = KEYWORDS[0];
        for file in [
            png(b"tEXt", &[b"Comment\0", PROFILE]),
            png(b"tEXt", &[keyword, b"\0\nexif\n4\n457g"]),
            png(b"tEXt", &[keyword, b"\0\nexif\n4\n457"]),
            png(b"tEXt", &[keyword, b"\0", &long]),
            png(b"zTXt", &[keyword, b"\0\0", &compressed(&long)]),
            png(b"zTXt", &[keyword, b"\0\x01", &compressed(PROFILE)]),
            png(b"zTXt", &[keyword, b"\0\0no zlib"]),
            png(b"tIME", &[keyword, b"\0", PROFILE]),
        ] {
            assert_eq!(orientation(&file), None);
        }
    }
}
