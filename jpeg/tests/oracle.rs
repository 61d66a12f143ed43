//! Pixels equal those of libjpeg-turbo, in whole images and regions, at every level of instructions.

#![cfg(feature = "oracle")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a test says what it left out")]

use std::fs;
use std::path::{Path, PathBuf};

use forebay_jpeg::oracle::{self, Encoding, OracleFormat, SAMPLINGS};
use forebay_jpeg::{
    ColorModel, InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder, SeekIndex,
};

/// Numbers that depend on their seed only (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Number of generated files: 400, or what `FOREBAY_JPEG_CASES` says.
fn cases() -> usize {
    let named = std::env::var("FOREBAY_JPEG_CASES").ok();
    named.map_or(400, |n| n.parse().expect("a number"))
}

/// Any settings of a small file.
fn encoding(numbers: &mut Numbers) -> Encoding {
    Encoding {
        size: (1 + numbers.below(70), 1 + numbers.below(70)),
        sampling: Some(numbers.below(SAMPLINGS.len() + 1)).filter(|&s| s < SAMPLINGS.len()),
        quality: 1 + numbers.below(100) as u8,
        restart_interval: [0, 0, 1, 2, 7, 30][numbers.below(6)],
        is_optimized: numbers.below(2) == 0,
        is_progressive: numbers.below(4) == 0,
    }
}

/// Pixels with flat areas, gradients, edges and noise.
fn picture(numbers: &mut Numbers, (width, height): (usize, usize)) -> Vec<u8> {
    let noise = [0, 4, 40, 256][numbers.below(4)];
    let (a, b, c) = (numbers.below(9), numbers.below(9), numbers.below(256));
    let edge = numbers.below(width + 1);
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let base = c + x * a + y * b * channel + if x > edge { 120 } else { 0 };
                let noise = if noise == 0 { 0 } else { numbers.below(noise) };
                pixels.push((base + noise) as u8);
            }
        }
    }
    pixels
}

fn crop(image: &[u8], width: usize, channels: usize, region: PixelRegion) -> Vec<u8> {
    let rows = image.chunks_exact(width * channels).skip(region.y);
    rows.take(region.height)
        .flat_map(|row| &row[region.x * channels..(region.x + region.width) * channels])
        .copied()
        .collect()
}

fn region(numbers: &mut Numbers, header: &JpegHeader) -> PixelRegion {
    let (x, y) = (
        numbers.below(header.width()),
        numbers.below(header.height()),
    );
    PixelRegion {
        x,
        y,
        width: 1 + numbers.below(header.width() - x),
        height: 1 + numbers.below(header.height() - y),
    }
}

/// Compares a file's pixels with the oracle's at every level.
fn compare(
    name: &str,
    file: &[u8],
    header: &JpegHeader,
    decoders: &mut [RegionDecoder],
    numbers: &mut Numbers,
) {
    let has_luma = header.color() != ColorModel::Rgb;
    let mut outputs = vec![(PixelFormat::Rgb, OracleFormat::Rgb)];
    if has_luma {
        outputs.push((PixelFormat::Luma, OracleFormat::Luma));
    }
    for (output, samples) in outputs {
        let expected = oracle::decode(file, samples).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(
            (expected.width, expected.height),
            (header.width(), header.height())
        );
        let channels = output.channels(header);
        let regions = [
            PixelRegion::whole(header),
            region(numbers, header),
            region(numbers, header),
        ];
        for decoder in &mut *decoders {
            // The index grows from the last region on, so that it covers the others partly.
            let mut index = SeekIndex::new(header);
            let warm = regions.iter().rev().chain(&regions).map(|r| (r, true));
            for (region, is_indexed) in regions.iter().map(|r| (r, false)).chain(warm) {
                let index = index.as_mut().filter(|_| is_indexed);
                let mut out = vec![0; region.width * region.height * channels];
                let decoded = decoder.decode(file, header, *region, output, index, &mut out);
                assert!(!decoded.unwrap().is_damaged, "{name} {region:?} {output:?}");
                let expected = crop(&expected.samples, header.width(), channels, *region);
                let wrong = out.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "{name}: {region:?} {output:?} {is_indexed}");
            }
        }
    }
}

fn decoders() -> Vec<RegionDecoder> {
    InstructionSet::all().map(RegionDecoder::new).collect()
}

#[test]
fn generated_files_have_the_pixels_of_the_oracle() {
    let mut decoders = decoders();
    for seed in 0..cases() as u64 {
        let numbers = &mut Numbers(seed);
        let encoding = encoding(numbers);
        let pixels = picture(numbers, encoding.size);
        let file = oracle::encode(&encoding, &pixels).unwrap();
        let header = JpegHeader::read(&file).unwrap();
        let name = format!("seed {seed}, {encoding:?}");
        let has_index = SeekIndex::new(&header).is_some();
        assert_eq!(has_index, !encoding.is_progressive, "{name}");
        compare(&name, &file, &header, &mut decoders, numbers);
    }
}

/// Returns the places of the coded data of all scans. The encoder writes no marker with a length of
/// zero, and no thumbnail.
fn coded_data(file: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let (mut at, mut is_coded) = (2, false);
    while at + 2 < file.len() {
        if file[at] == 0xff && file[at + 1] != 0 {
            is_coded = file[at + 1] == 0xda;
            at += 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        } else {
            assert!(is_coded, "byte {at} is in no segment");
            places.push(at);
            at += 1;
        }
    }
    places
}

/// Changes up to three bytes of coded data, and makes no marker.
fn alter(file: &mut [u8], numbers: &mut Numbers) {
    let places = coded_data(file);
    for _ in 0..1 + numbers.below(3) {
        let at = places[numbers.below(places.len())];
        if file[at] != 0xff && file[at - 1] != 0xff {
            file[at] = numbers.below(255) as u8;
        }
    }
}

#[test]
fn coded_data_that_no_encoder_writes_has_the_pixels_of_the_oracle() {
    let mut decoder = RegionDecoder::new(InstructionSet::best());
    let mut compared = 0;
    for seed in 0..2 * cases() as u64 {
        let numbers = &mut Numbers(seed);
        let encoding = Encoding {
            restart_interval: 0,
            is_progressive: seed % 4 > 0,
            ..encoding(numbers)
        };
        // Few of the changes lead to extreme samples, which are not compared.
        let pixels = picture(numbers, encoding.size);
        let pixels: Vec<u8> = pixels.iter().map(|sample| 64 + sample / 2).collect();
        let mut file = oracle::encode(&encoding, &pixels).unwrap();
        alter(&mut file, numbers);
        let Ok(header) = JpegHeader::read(&file) else {
            continue;
        };
        let region = PixelRegion::whole(&header);
        let mut pixels = vec![0; region.width * region.height * 3];
        let decoded = decoder.decode(&file, &header, region, PixelFormat::Rgb, None, &mut pixels);
        // libjpeg-turbo wraps some coefficients that overflow; the samples of such are extreme.
        let is_extreme = pixels.iter().any(|&sample| sample == 0 || sample == 255);
        if decoded.is_ok_and(|decoded| !decoded.is_damaged)
            && !is_extreme
            && let Ok(image) = oracle::decode(&file, OracleFormat::Rgb)
        {
            assert!(image.samples == pixels, "seed {seed}, {encoding:?}");
            compared += 1;
        }
    }
    println!("compared {compared} files");
    assert!(compared >= cases() / 20, "compared only {compared} files");
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Files by others, where `FOREBAY_TEST_DATA` names them.
#[test]
fn files_by_others_have_the_pixels_of_the_oracle() {
    let Some(folder) = std::env::var_os("FOREBAY_TEST_DATA") else {
        println!("skipped: FOREBAY_TEST_DATA is not set");
        return;
    };
    let mut found = Vec::new();
    for name in ["photos/imagenet_sample", "odd_images"] {
        files(&Path::new(&folder).join(name), &mut found);
    }
    found.sort();
    let mut decoders = decoders();
    let (mut compared, mut refused) = (0, 0);
    for path in &found {
        let file = fs::read(path).unwrap();
        let Ok(header) = JpegHeader::read(&file) else {
            continue;
        };
        let name = path.display().to_string();
        // Files that the oracle refuses, or warns of, have no pixels to compare with.
        if let Err(error) = oracle::decode(&file, OracleFormat::Rgb) {
            println!("not compared: {name}: {error}");
            refused += 1;
            continue;
        }
        compare(&name, &file, &header, &mut decoders, &mut Numbers(compared));
        compared += 1;
    }
    println!("compared {compared} files; the oracle refused {refused}");
    assert!(compared >= 300, "compared only {compared} files");
}
