//! Damaged files: no panic, and the pixels of a region are those of the whole image, at every level.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;

use changes::{apply, change};
use forebay_jpeg::{InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder};
use image::{ImageFormat, Rgb, RgbImage};
use proptest::prelude::*;

/// A small photo-like file.
fn file() -> Vec<u8> {
    let image = RgbImage::from_fn(57, 43, |x, y| {
        let noise = (x * 7 + y * 13) * (x ^ y) % 90;
        Rgb([(x * 4 + noise) as u8, (y * 5) as u8, (noise * 2 + x) as u8])
    });
    let mut file = std::io::Cursor::new(Vec::new());
    image.write_to(&mut file, ImageFormat::Jpeg).unwrap();
    file.into_inner()
}

/// Turns a file into a progressive one with the same data, which makes little sense of it.
fn progressive(file: &mut [u8]) {
    if let Some(at) = file.windows(2).position(|w| w == [0xff, 0xc0]) {
        file[at + 1] = 0xc2;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_region_has_the_pixels_of_the_whole_image(
        changes in prop::collection::vec(change(), 1..4),
        is_progressive: bool,
        (left, top, width, height) in (0u16.., 0u16.., 0u16.., 0u16..),
    ) {
        let mut file = file();
        if is_progressive {
            progressive(&mut file);
        }
        for change in &changes {
            apply(&mut file, change);
        }
        let header = JpegHeader::read(&file);
        // A change of the frame may make an image too large for a test.
        let is_small = |h: &JpegHeader| h.width() * h.height() < 1 << 18;
        if let Ok(header) = header && is_small(&header) {
            let part = |at: u16, limit: usize| (usize::from(at) * limit) >> 16;
            let (x, y) = (part(left, header.width()), part(top, header.height()));
            let region = PixelRegion {
                x,
                y,
                width: 1 + part(width, header.width() - x),
                height: 1 + part(height, header.height() - y),
            };
            let whole = PixelRegion::whole(&header);
            let mut results = Vec::new();
            for simd in InstructionSet::all() {
                let mut decoder = RegionDecoder::new(simd);
                let mut decode = |region: PixelRegion| {
                    let mut out = vec![7; region.width * region.height * 3];
                    let decoded = decoder.decode(&file, &header, region, PixelFormat::Rgb, None, &mut out);
                    decoded.map(|_| out)
                };
                let (all, cut) = (decode(whole), decode(region));
                prop_assert_eq!(all.is_ok(), cut.is_ok());
                if let (Ok(all), Ok(cut)) = (&all, &cut) {
                    for (row, found) in cut.chunks_exact(region.width * 3).enumerate() {
                        let at = ((region.y + row) * header.width() + region.x) * 3;
                        prop_assert_eq!(found, &all[at..at + region.width * 3], "{:?}", simd);
                    }
                }
                results.push(all);
            }
            prop_assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
}
