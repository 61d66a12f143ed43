use std::sync::Arc;

use image::{DynamicImage, GrayAlphaImage, GrayImage, ImageBuffer, ImageFormat, Rgb, RgbaImage};

use super::*;
use crate::draw::Draws;
use crate::image::call::Rectangle;
use crate::image::testing::{encoded, picture};
use crate::seek_index_store::{SeekIndexAccess, SeekIndexStore};

fn decoded(bytes: &[u8]) -> Result<Pixels, String> {
    let mut scratch = Scratch::default();
    decode_whole(bytes, Mode::Rgb, &mut scratch)?;
    let EncodedHeader { height, width, .. } = header(bytes)?;
    assert_eq!(
        (scratch.front.shape.height, scratch.front.shape.width),
        (height, width)
    );
    Ok(scratch.front)
}

#[test]
fn lossless_formats_give_their_pixels() {
    let picture = picture(37, 21);
    for format in [
        ImageFormat::Png,
        ImageFormat::WebP,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
    ] {
        let pixels = decoded(&encoded(picture.clone(), format)).unwrap();
        assert_eq!(pixels.u8s, picture.as_raw().as_slice(), "{format:?}");
    }
    let gif = decoded(&encoded(
        DynamicImage::from(picture).to_rgba8(),
        ImageFormat::Gif,
    ))
    .unwrap();
    assert_eq!((gif.shape.height, gif.shape.width), (21, 37));
}

#[test]
fn jpeg_is_close_and_gray_is_luma() {
    let picture = picture(64, 48);
    let file = encoded(picture.clone(), ImageFormat::Jpeg);
    let pixels = decoded(&file).unwrap();
    let far = pixels
        .u8s
        .iter()
        .zip(picture.as_raw())
        .map(|(a, b)| u64::from(a.abs_diff(*b)));
    assert!(far.sum::<u64>() < 12 * pixels.u8s.len() as u64);
    let mut scratch = Scratch::default();
    decode_whole(&file, Mode::Gray, &mut scratch).unwrap();
    assert_eq!(scratch.front.shape.channels, 1);
    let [r, g, b] = [pixels.u8s[0], pixels.u8s[1], pixels.u8s[2]].map(f64::from);
    let luma = 0.299 * r + 0.587 * g + 0.114 * b;
    assert!((f64::from(scratch.front.u8s[0]) - luma).abs() <= 1.0);
}

#[test]
fn other_color_types_come_to_rgb() {
    let gray = GrayImage::from_pixel(3, 2, image::Luma([9]));
    assert_eq!(
        decoded(&encoded(gray.clone(), ImageFormat::Png))
            .unwrap()
            .u8s,
        [9; 18]
    );
    assert_eq!(
        decoded(&encoded(gray, ImageFormat::Jpeg))
            .unwrap()
            .u8s
            .len(),
        18
    );
    let alpha = GrayAlphaImage::from_pixel(1, 1, image::LumaA([9, 0]));
    assert_eq!(
        decoded(&encoded(alpha, ImageFormat::Png)).unwrap().u8s,
        [9; 3]
    );
    let rgba = RgbaImage::from_pixel(1, 1, image::Rgba([1, 2, 3, 0]));
    assert_eq!(
        decoded(&encoded(rgba, ImageFormat::Png)).unwrap().u8s,
        [1, 2, 3]
    );
    let wide: ImageBuffer<Rgb<u16>, _> =
        ImageBuffer::from_pixel(1, 1, Rgb([0x1234, 0xff00, 0x00ff]));
    assert_eq!(
        decoded(&encoded(wide, ImageFormat::Png)).unwrap().u8s,
        [0x12, 0xff, 0]
    );
}

/// Returns the JPEG file with an EXIF segment that holds only the orientation tag.
fn with_orientation(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let mut tiff = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    tiff.extend([orientation, 0, 0, 0, 0, 0, 0]);
    let mut file = jpeg[..2].to_vec();
    file.extend([0xff, 0xe1]);
    file.extend(((tiff.len() + 2) as u16).to_be_bytes());
    file.extend(tiff);
    file.extend(&jpeg[2..]);
    file
}

#[test]
fn orientation_is_applied() {
    let jpeg = encoded(picture(16, 8), ImageFormat::Jpeg);
    let plain = decoded(&jpeg).unwrap();
    let at = |p: &Pixels, y: usize, x: usize| {
        let i = (y * p.shape.width + x) * 3;
        [p.u8s[i], p.u8s[i + 1], p.u8s[i + 2]]
    };
    // The stored position of the pixel displayed at the top left (EXIF 2.3, tag 274).
    let corners = [
        (0, 0),
        (0, 15),
        (7, 15),
        (7, 0),
        (0, 0),
        (7, 0),
        (7, 15),
        (0, 15),
    ];
    for (orientation, (y, x)) in (1..=8).zip(corners) {
        let shown = decoded(&with_orientation(&jpeg, orientation)).unwrap();
        let turned = orientation > 4;
        assert_eq!(
            shown.shape.height,
            if turned { 16 } else { 8 },
            "{orientation}"
        );
        assert_eq!(at(&shown, 0, 0), at(&plain, y, x), "{orientation}");
    }
}

#[test]
fn orientation_of_png_comes_from_exif_text_or_xmp() {
    let chunk = |kind: &[u8], data: &[u8]| {
        let mut chunk = (data.len() as u32).to_be_bytes().to_vec();
        chunk.extend(kind);
        chunk.extend(data);
        chunk.extend(crc(&chunk[4..]).to_be_bytes());
        chunk
    };
    let png = encoded(picture(16, 8), ImageFormat::Png);
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let xmp = b"XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation=\"6\"/>";
    let raw: &[u8] = b"Raw profile type exif\0\nexif\n      32\n\
        4578696600004d4d002a0000000800010112000300000001000600000000000a\n";
    for (kind, data) in [
        (b"eXIf", exif.as_slice()),
        (b"iTXt", xmp.as_slice()),
        (b"tEXt", raw),
    ] {
        let mut file = png.clone();
        // After the header chunk: 8 bytes of signature, 25 of IHDR.
        file.splice(33..33, chunk(kind, data));
        let shown = decoded(&file).unwrap();
        assert_eq!((shown.shape.height, shown.shape.width), (16, 8));
    }
}

/// Computes the checksum of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    })
}

#[test]
fn broken_files_are_errors() {
    let jpeg = encoded(picture(64, 64), ImageFormat::Jpeg);
    for (bytes, message) in [
        (vec![], "empty (0 bytes)"),
        (b"hello".to_vec(), "begin with 68 65 6c 6c"),
        (jpeg[..jpeg.len() / 2].to_vec(), "truncated"),
        (jpeg[..20].to_vec(), "JPEG"),
        (
            encoded(picture(64, 64), ImageFormat::Png)[..200].to_vec(),
            "broken PNG",
        ),
    ] {
        let error = decoded(&bytes).map(drop).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

/// Damaged data has defined pixels, and a part of the image has the pixels of the whole, but strict
/// decoding refuses the file.
#[test]
fn damaged_data_is_an_error_of_strict_decoding_only() {
    let jpeg = encoded(picture(64, 64), ImageFormat::Jpeg);
    let mut damaged = jpeg.clone();
    damaged[jpeg.len() * 2 / 3] ^= 0x55;
    for file in [&jpeg, &damaged, &corrupt(&jpeg)] {
        let whole = decoded(file).unwrap();
        let mut scratch = Scratch::default();
        let mut request = DecodeRequest {
            bytes: file,
            decoding: Decoding {
                mode: Mode::Rgb,
                is_strict: false,
            },
            reads: &|_| Some(Rectangle::at((50, -3), (20, 40))),
            indexes: None,
        };
        decode(&request, &mut scratch).unwrap();
        assert_eq!(
            (scratch.front.shape.height, scratch.front.shape.width),
            (14, 37)
        );
        for y in 0..14 {
            let row = &whole.u8s[(50 + y) * 64 * 3..][..37 * 3];
            assert_eq!(&scratch.front.u8s[y * 37 * 3..][..37 * 3], row);
        }
        request.decoding.is_strict = true;
        let strict = decode(&request, &mut scratch);
        if *file == jpeg {
            strict.unwrap();
            assert_eq!(scratch.front.u8s, whole.u8s);
        } else if *file == corrupt(&jpeg) {
            let error = strict.unwrap_err();
            assert!(error.contains("data is damaged"), "{error}");
        }
    }
}

/// Returns the JPEG file with its scan data overwritten by bits that are not a Huffman code.
fn corrupt(jpeg: &[u8]) -> Vec<u8> {
    let mut file = jpeg.to_vec();
    let scan = file.windows(2).position(|w| w == [0xff, 0xda]).unwrap() + 14;
    let end = file.len() - 2;
    // The bits of the scan are all ones, with the zero byte that must follow 0xff: no Huffman code
    // consists of ones only.
    file[scan..end]
        .iter_mut()
        .enumerate()
        .for_each(|(i, b)| *b = if i % 2 == 0 { 0xff } else { 0 });
    file
}

#[test]
fn a_huge_header_is_refused_before_allocation() {
    // A PNG header of 60 000 x 60 000 with a valid checksum.
    let mut header = b"IHDR".to_vec();
    header.extend(60_000_u32.to_be_bytes());
    header.extend(60_000_u32.to_be_bytes());
    header.extend([8, 2, 0, 0, 0]);
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0d".to_vec();
    file.extend(header);
    file.extend(crc(&file[12..]).to_be_bytes());
    file.extend(b"\0\0\0\0IDAT\x35\xaf\x06\x1e");
    let error = decoded(&file).map(drop).unwrap_err();
    assert!(
        error.contains("above the limit") || error.contains("broken PNG"),
        "{error}"
    );
    // A JPEG frame header of 65 500 x 65 500.
    let mut jpeg = encoded(picture(16, 16), ImageFormat::Jpeg);
    let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let error = decoded(&jpeg).map(drop).unwrap_err();
    assert!(error.contains("above the limit"), "{error}");
}

#[test]
fn random_damage_never_panics() {
    let files: Vec<Vec<u8>> = [
        ImageFormat::Jpeg,
        ImageFormat::Png,
        ImageFormat::WebP,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
    ]
    .into_iter()
    .map(|format| encoded(picture(23, 17), format))
    .collect();
    let mut draws = Draws::new(5, 6, 7, 8);
    let mut errors = 0;
    for i in 0..600 {
        let mut file = files[i % files.len()].clone();
        for _ in 0..=draws.below(8) {
            let at = draws.below(file.len() as u64) as usize;
            file[at] = draws.next_u32() as u8;
        }
        if draws.chance(0.3) {
            file.truncate(draws.below(file.len() as u64) as usize);
        }
        errors += usize::from(decoded(&file).is_err());
    }
    assert!(errors > 100, "{errors}");
    assert!(!panics_are_caught());
}

#[test]
fn luma_is_the_files_own_where_it_has_one() {
    let mut scratch = Scratch::default();
    for (width, height) in [(64, 48), (33, 57), (9, 7)] {
        let file = encoded(picture(width, height), ImageFormat::Jpeg);
        decode_whole(&file, Mode::Gray, &mut scratch).unwrap();
        let gray = scratch.front.clone();
        decode_whole(&file, Mode::Luma, &mut scratch).unwrap();
        assert_eq!(scratch.front.shape, gray.shape);
        // Gray is computed from colors that were clamped to 0 to 255 and rounded.
        let far = scratch.front.u8s.iter().zip(&gray.u8s);
        let far: u64 = far.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        assert!(far < gray.u8s.len() as u64, "{far} of {}", gray.u8s.len());
    }
    for format in [ImageFormat::Png, ImageFormat::Bmp] {
        let file = encoded(picture(20, 10), format);
        decode_whole(&file, Mode::Gray, &mut scratch).unwrap();
        let gray = scratch.front.clone();
        decode_whole(&file, Mode::Luma, &mut scratch).unwrap();
        assert_eq!(scratch.front.u8s, gray.u8s);
    }
    let file = encoded(picture(64, 48), ImageFormat::Jpeg);
    let gray = DynamicImage::from(picture(64, 48)).to_luma8();
    let gray = encoded(gray, ImageFormat::Jpeg);
    decode_whole(&gray, Mode::Luma, &mut scratch).unwrap();
    assert_eq!(scratch.front.shape.channels, 1);
    let broken = decode_whole(&file[..file.len() / 2], Mode::Luma, &mut scratch);
    assert!(broken.is_err_and(|e| e.contains("truncated")));
}

/// Decodes a region of a file, as bytes with the size, or as the error.
fn region(
    bytes: &[u8],
    rectangle: Rectangle,
    indexes: Option<&SeekIndexAccess>,
) -> Result<(PixelShape, Vec<u8>), String> {
    let request = DecodeRequest {
        bytes,
        decoding: Decoding {
            mode: Mode::Rgb,
            is_strict: false,
        },
        reads: &|_| Some(rectangle),
        indexes,
    };
    let mut scratch = Scratch::default();
    decode(&request, &mut scratch)?;
    Ok((scratch.front.shape, scratch.front.u8s))
}

/// Files, most of them damaged, decode to the same pixels or errors without a seek index, while one is
/// recorded, and with it. `FOREBAY_INDEX_CASES` sets the number of files.
#[test]
fn seek_indexes_change_no_pixels() {
    let cases = std::env::var("FOREBAY_INDEX_CASES").map_or(60, |cases| cases.parse().unwrap());
    let store = Arc::<SeekIndexStore>::default();
    let records = SeekIndexAccess::new(Arc::clone(&store), 1 << 30, true);
    let reads = SeekIndexAccess::new(Arc::clone(&store), 0, false);
    let (mut decoded, mut kept) = (0, 0);
    for case in 0..cases {
        let mut draws = Draws::new(7, case, 0, 0);
        let mut draw = |below: u64| draws.below(below);
        let (width, height) = (60 + draw(200) as u32, 40 + draw(200) as u32);
        let mut file = encoded(picture(width, height), ImageFormat::Jpeg);
        for _ in 0..draw(4) {
            let at = draw(file.len() as u64) as usize;
            file[at] = draw(256) as u8;
        }
        for _ in 0..4 {
            let (top, left) = (
                draw(u64::from(height)) as i64,
                draw(u64::from(width)) as i64,
            );
            let size = (1 + draw(60) as usize, 1 + draw(60) as usize);
            let rectangle = Rectangle::at((top, left), size);
            let expected = region(&file, rectangle, None);
            let before = store.bytes();
            assert_eq!(region(&file, rectangle, Some(&records)), expected, "{case}");
            kept += u64::from(store.bytes() > before);
            for warm in [&reads, &records] {
                assert_eq!(region(&file, rectangle, Some(warm)), expected, "{case}");
            }
            decoded += u64::from(expected.is_ok());
        }
    }
    // Most files keep an index, and few are damaged beyond decoding.
    assert!(
        kept > cases / 2 && decoded > cases * 2,
        "{kept}, {decoded} of {cases}"
    );
}

#[test]
fn whole_images_and_jobs_of_one_epoch_record_no_index() {
    let store = Arc::<SeekIndexStore>::default();
    let file = encoded(picture(200, 200), ImageFormat::Jpeg);
    let records = SeekIndexAccess::new(Arc::clone(&store), 1 << 20, true);
    let whole = Rectangle::at((0, 0), (200, 200));
    region(&file, whole, Some(&records)).unwrap();
    let part = Rectangle::at((100, 100), (20, 20));
    let reads = SeekIndexAccess::new(Arc::clone(&store), 1 << 20, false);
    region(&file, part, Some(&reads)).unwrap();
    assert_eq!(store.bytes(), 0);
    region(&file, part, Some(&records)).unwrap();
    assert!(store.bytes() > 0);
}
