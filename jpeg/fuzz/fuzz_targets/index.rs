//! Decodes regions of any bytes with a seek index: the outcome is that without one, and any bytes of
//! an index are an error or an index that is safe to decode with.
//!
//! ```sh
//! cargo run -p forebay-jpeg --features oracle --example fuzz_corpus
//! cp Cargo.lock jpeg/fuzz/ && cd jpeg && cargo fuzz run -s none index -- -max_len=20000
//! ```

#![no_main]

use forebay_jpeg::{
    InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder, SeekIndex,
};
use libfuzzer_sys::fuzz_target;

/// Largest image that is decoded here: the fuzzer looks for faults, not for long runs.
const MAX_PIXELS: usize = 1 << 16;

/// Number of regions.
const REGIONS: usize = 3;

fuzz_target!(|input: ([(u16, u16, u16, u16); REGIONS], Vec<u8>, &[u8])| {
    let (regions, index, file) = input;
    let Ok(header) = JpegHeader::read(file) else {
        return;
    };
    if header.width() * header.height() > MAX_PIXELS {
        return;
    }
    let Some(mut growing) = SeekIndex::new(&header) else {
        return;
    };
    let mut any = SeekIndex::from_bytes(&header, &index);
    if let Ok(any) = &any {
        assert_eq!(any.to_bytes(), index);
    }
    let mut decoder = RegionDecoder::new(InstructionSet::best());
    for (x, y, width, height) in regions {
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
        let mut decode = |index: Option<&mut SeekIndex>| {
            let mut out = vec![0; region.width * region.height * 3];
            let format = PixelFormat::Rgb;
            let decoded = decoder.decode(file, &header, region, format, index, &mut out);
            decoded.map(|d| (out, d.is_damaged))
        };
        let expected = decode(None);
        assert!(decode(Some(&mut growing)) == expected, "a growing index");
        let mut read = SeekIndex::from_bytes(&header, &growing.to_bytes()).expect("own bytes");
        assert_eq!(read, growing);
        assert!(
            decode(Some(&mut read)) == expected,
            "an index that was read"
        );
        if let Ok(any) = &mut any {
            assert_eq!(decode(Some(any)).is_ok(), expected.is_ok());
        }
    }
});
