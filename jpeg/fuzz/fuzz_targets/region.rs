//! Decodes any bytes: no panic, equal pixels at every level, the region's pixels those of the whole
//! image, and the oracle's where it finds no damage.
//!
//! ```sh
//! cargo run -p forebay-jpeg --features oracle --example fuzz_corpus
//! cp Cargo.lock jpeg/fuzz/ && cd jpeg && cargo fuzz run -s none region -- -max_len=20000
//! ```

#![no_main]

use forebay_jpeg::oracle::{self, OracleFormat};
use forebay_jpeg::{
    ColorModel, InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder,
};
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
    let (x, y) = (
        usize::from(x) % header.width(),
        usize::from(y) % header.height(),
    );
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
                assert!(
                    *found == whole[at..at + region.width * 3],
                    "row {row} of the region"
                );
            }
        }
        match &first {
            None => first = Some(whole),
            Some(first) => assert!(*first == whole, "{simd:?} decodes other pixels"),
        }
    }
    // libjpeg-turbo smooths the blocks of files that lack scans. Where a stuffed byte follows a fill
    // byte, it keeps coefficients of a first attempt to decode the block (`jdhuff.c`, `decode_mcu`).
    if lacks_scans(file) || file.windows(3).any(|bytes| bytes == [0xff, 0xff, 0]) {
        return;
    }
    let has_inks = matches!(header.color(), ColorModel::Cmyk | ColorModel::Ycck);
    // Where coefficients overflow, libjpeg-turbo wraps in some places and saturates in others. Such
    // samples are saturated here, so images with extreme samples are not compared.
    if let Some(Ok((pixels, false))) = first
        && !has_inks
        && !pixels.iter().any(|&sample| sample == 0 || sample == 255)
        && let Ok(image) = oracle::decode(file, OracleFormat::Rgb)
    {
        let mut samples = image.samples.iter().zip(&pixels);
        assert_eq!(
            samples.position(|(theirs, ours)| theirs != ours),
            None,
            "sample"
        );
    }
});

/// Returns true if a progressive file leaves bits of the coefficients unknown for which
/// libjpeg-turbo smooths (`jdcoefct.c`, `smoothing_ok`).
fn lacks_scans(file: &[u8]) -> bool {
    const COEFFICIENTS: usize = 10;
    let end = places(file, 0xd9).next();
    let file = &file[..end.unwrap_or(file.len())];
    let markers = |kind| places(file, kind).map(|at| &file[at + 2..]);
    if markers(0xc2).next().is_none() {
        return false;
    }
    let mut unknown = std::collections::BTreeMap::new();
    for scan in markers(0xda) {
        let Some(&count) = scan.get(2) else { continue };
        let Some((ids, rest)) = scan[3..].split_at_checked(usize::from(count) * 2) else {
            continue;
        };
        let [start, end, bits, ..] = *rest else {
            continue;
        };
        for id in ids.iter().step_by(2) {
            let unknown = unknown.entry(*id).or_insert([true; COEFFICIENTS]);
            for k in usize::from(start)..=usize::from(end).min(COEFFICIENTS - 1) {
                unknown[k] = bits & 15 != 0;
            }
        }
    }
    unknown.values().flatten().any(|&unknown| unknown)
}

/// Returns the places of markers.
fn places(file: &[u8], kind: u8) -> impl Iterator<Item = usize> {
    let pairs = file.windows(2).enumerate();
    pairs
        .filter(move |(_, pair)| *pair == [0xff, kind])
        .map(|(at, _)| at)
}
