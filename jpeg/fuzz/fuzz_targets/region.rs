//! Decodes any bytes: no panic, equal pixels at every level, the region's pixels those of the whole
//! image, and the oracle's where it finds no damage.
//!
//! ```sh
//! cd jpeg && cargo fuzz run -s none region -- -max_len=20000
//! ```

#![no_main]

use forebay_jpeg::oracle::{self, OracleFormat};
use forebay_jpeg::{ColorModel, InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder};
use libfuzzer_sys::fuzz_target;

/// Largest image that is decoded here: the fuzzer looks for faults, not for long runs.
const MAX_PIXELS: usize = 1 << 16;

fuzz_target!(|input: (u16, u16, u16, u16, &[u8])| {
    let (x, y, width, height, file) = input;
    let Ok(header) = JpegHeader::read(file) else {
        return;
    };
    if header.width() * header.height() > MAX_PIXELS {
        return;
    }
    let (x, y) = (usize::from(x) % header.width(), usize::from(y) % header.height());
    let region = PixelRegion {
        x,
        y,
        width: 1 + usize::from(width) % (header.width() - x),
        height: 1 + usize::from(height) % (header.height() - y),
    };
    let mut first = None;
    for simd in InstructionSet::all() {
        let mut decoder = RegionDecoder::new(simd);
        let mut decode = |region: PixelRegion| {
            let mut out = vec![0; region.width * region.height * 3];
            let decoded = decoder.decode(file, &header, region, PixelFormat::Rgb, None, &mut out);
            decoded.map(|d| (out, d.is_damaged))
        };
        let whole = decode(PixelRegion::whole(&header));
        let part = decode(region);
        assert_eq!(whole.is_ok(), part.is_ok());
        if let (Ok((whole, _)), Ok((part, _))) = (&whole, &part) {
            for (row, found) in part.chunks_exact(region.width * 3).enumerate() {
                let at = ((region.y + row) * header.width() + region.x) * 3;
                assert_eq!(found, &whole[at..at + region.width * 3]);
            }
        }
        match &first {
            None => first = Some(whole),
            Some(first) => assert_eq!(*first, whole),
        }
    }
    let has_inks = matches!(header.color(), ColorModel::Cmyk | ColorModel::Ycck);
    // Where coefficients overflow, libjpeg-turbo wraps in some places and saturates in others. Such
    // samples are saturated here, so images with extreme samples are not compared.
    if let Some(Ok((pixels, false))) = first
        && !has_inks
        && !pixels.iter().any(|&sample| sample == 0 || sample == 255)
        && let Ok(image) = oracle::decode(file, OracleFormat::Rgb)
    {
        assert_eq!(image.samples, pixels);
    }
});
