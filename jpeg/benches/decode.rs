//! Compares decoding with libjpeg-turbo, interleaved, on the JPEG files of a folder.
//!
//! ```sh
//! taskset -c 0 cargo bench -p forebay-jpeg --features oracle -- FOLDER [ROUNDS [NAME]]
//! ```
//!
//! Prints the median time of an image, and the ratio of medians, for whole images, for luma, and for
//! the regions of `random_resized_crop(scale = (0.08, 1))`: without a seek index, recording one from
//! nothing, and with that of the whole file, which is read from its bytes. Regions differ from round to
//! round.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use forebay_jpeg::oracle::{self, Image, OracleFormat};
use forebay_jpeg::{
    InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder, SeekIndex,
};

/// A way to decode a photo, or a region of it.
type Work = Box<dyn FnMut(&Photo, PixelRegion)>;

/// A file with its header and its seek index.
struct Photo {
    file: Vec<u8>,
    header: JpegHeader,
    /// Bytes of the index of the whole file, if it can have one.
    index: Option<Vec<u8>>,
}

/// The part of a photo that is decoded, and the use of its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Whole,
    Region,
    Recording,
    Indexed,
}

/// Returns a number from 0 to 1 that depends on its seed only.
fn fraction(seed: &mut u64) -> f64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 11) as f64 / (1u64 << 53) as f64
}

fn random_region(header: &JpegHeader, seed: &mut u64) -> PixelRegion {
    let (width, height) = (header.width() as f64, header.height() as f64);
    let area = width * height * (0.08 + 0.92 * fraction(seed));
    let ratio = ((fraction(seed) * 2.0 - 1.0) * (4.0f64 / 3.0).ln()).exp();
    let side = |length: f64, limit: f64| length.round().clamp(1.0, limit) as usize;
    let (w, h) = (
        side((area * ratio).sqrt(), width),
        side((area / ratio).sqrt(), height),
    );
    let place = |limit: usize, seed: &mut u64| (fraction(seed) * (limit + 1) as f64) as usize;
    PixelRegion {
        x: place(header.width() - w, seed),
        y: place(header.height() - h, seed),
        width: w,
        height: h,
    }
}

fn photos(folder: &str) -> Result<Vec<Photo>, Box<dyn Error>> {
    let mut paths: Vec<_> = fs::read_dir(folder)?
        .map(|e| e.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut decoder = RegionDecoder::new(InstructionSet::best());
    let mut photos = Vec::new();
    for path in paths {
        let file = fs::read(path)?;
        if let Ok(header) = JpegHeader::read(&file) {
            let mut index = SeekIndex::new(&header);
            let (region, format) = (PixelRegion::whole(&header), PixelFormat::Rgb);
            let mut out = vec![0; region.width * region.height * 3];
            let decoded = decoder.decode(&file, &header, region, format, index.as_mut(), &mut out);
            black_box(decoded).ok();
            photos.push(Photo {
                file,
                header,
                index: index.map(|i| i.to_bytes()),
            });
        }
    }
    Ok(photos)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let folder = arguments.first().ok_or("name a folder of JPEG files")?;
    let rounds = arguments.get(1).map_or(Ok(7), |r| r.parse())?;
    let photos = photos(folder)?;
    let indexed = photos.iter().filter(|p| p.index.is_some());
    let bytes: usize = indexed.clone().map(|p| p.file.len()).sum();
    let index_bytes: usize = indexed.clone().flat_map(|p| &p.index).map(Vec::len).sum();
    println!(
        "{} files; indexes of {} take {:.2} % of their bytes",
        photos.len(),
        indexed.count(),
        100.0 * index_bytes as f64 / bytes as f64
    );
    let mut image = Image {
        width: 0,
        height: 0,
        samples: Vec::new(),
    };
    let mut names = vec!["libjpeg-turbo".to_owned(), "libjpeg-turbo luma".to_owned()];
    let mut works: Vec<Work> = Vec::new();
    for samples in [OracleFormat::Rgb, OracleFormat::Luma] {
        let mut image = image.clone();
        works.push(Box::new(move |p: &Photo, _| {
            black_box(oracle::decode_into(&p.file, samples, &mut image)).ok();
        }));
    }
    for simd in InstructionSet::all() {
        for (name, output, mode) in [
            ("whole", PixelFormat::Rgb, Mode::Whole),
            ("luma", PixelFormat::Luma, Mode::Whole),
            ("region", PixelFormat::Rgb, Mode::Region),
            ("region, recording", PixelFormat::Rgb, Mode::Recording),
            ("region, indexed", PixelFormat::Rgb, Mode::Indexed),
        ] {
            names.push(format!("{simd:?} {name}"));
            let mut decoder = RegionDecoder::new(simd);
            let mut out = std::mem::take(&mut image.samples);
            works.push(Box::new(move |p: &Photo, region| {
                let Ok(header) = JpegHeader::read(&p.file) else {
                    return;
                };
                let region = match mode {
                    Mode::Whole => PixelRegion::whole(&header),
                    _ => region,
                };
                let mut index = match (mode, &p.index) {
                    (Mode::Recording, _) => SeekIndex::new(&header),
                    (Mode::Indexed, Some(bytes)) => SeekIndex::from_bytes(&header, bytes).ok(),
                    _ => None,
                };
                out.resize(region.width * region.height * output.channels(&header), 0);
                let index = index.as_mut();
                black_box(decoder.decode(&p.file, &header, region, output, index, &mut out)).ok();
            }));
        }
    }
    if let Some(part) = arguments.get(2) {
        let kept: Vec<bool> = names.iter().map(|n| n.contains(part)).collect();
        let mut keep = kept.iter();
        names.retain(|_| keep.next() == Some(&true));
        let mut keep = kept.iter();
        works.retain(|_| keep.next() == Some(&true));
    }
    if works.is_empty() {
        return Err("no such name".into());
    }
    let mut times = vec![Vec::new(); works.len()];
    let mut seed = 1;
    for _ in 0..rounds {
        let regions: Vec<_> = { photos.iter() }
            .map(|p| random_region(&p.header, &mut seed))
            .collect();
        for (work, times) in works.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for (photo, region) in photos.iter().zip(&regions) {
                work(photo, *region);
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / photos.len() as f64);
        }
    }
    let base = median(&mut times[0]);
    for (name, times) in names.iter().zip(&mut times) {
        let time = median(times);
        println!("{name:32} {time:8.1} us  {:5.2}x", base / time);
    }
    Ok(())
}
