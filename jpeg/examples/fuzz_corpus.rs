//! Writes small JPEG files of every sampling, baseline and progressive, with and without restart
//! markers, as the first inputs of the fuzz targets of `jpeg/fuzz` and `udfs/fuzz`.
//!
//! ```sh
//! cargo run -p forebay-jpeg --features oracle --example fuzz_corpus
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use forebay_jpeg::oracle::{self, Encoding, SAMPLINGS};

/// Sizes of the images: blocks that end at an edge, one pixel, long rows and columns.
const SIZES: [(usize, usize); 6] = [(32, 32), (1, 1), (17, 23), (70, 9), (5, 70), (67, 50)];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let region = root.join("jpeg/fuzz/corpus/region");
    let index = root.join("jpeg/fuzz/corpus/index");
    let program = root.join("udfs/fuzz/corpus/program");
    for folder in [&region, &index, &program] {
        fs::create_dir_all(folder)?;
    }
    let mut written = 0_usize;
    for sampling in std::iter::once(None).chain((0..SAMPLINGS.len()).map(Some)) {
        for (place, &size) in SIZES.iter().enumerate() {
            for is_progressive in [false, true] {
                let encoding = Encoding {
                    size,
                    sampling,
                    quality: [90, 50, 100, 10, 75, 95][place],
                    restart_interval: [0, 0, 1, 2, 3, 0][place],
                    is_optimized: place % 2 == 1,
                    is_progressive,
                };
                let file = oracle::encode(&encoding, &picture(size))?;
                let name = format!("{written:03}.jpg");
                // Each target reads what it needs from the first bytes of an input, and takes the
                // rest as the file: four numbers of two bytes; ..
                fs::write(
                    region.join(&name),
                    [&[3, 0, 2, 0, 9, 0, 8, 0][..], &file].concat(),
                )?;
                // .. three times four numbers, and an index without bytes; ..
                let regions = [1, 0, 5, 0, 11, 0, 7, 0].repeat(3);
                fs::write(index.join(&name), [&regions[..], &[0], &file].concat())?;
                // .. a hash, a kind of decoding, and functions of four bytes, each behind a one.
                let function = (written % 26) as u8;
                let steps = [
                    &[1, function, 200, 31, 7][..],
                    &[1, 24, 120, 110, 100],
                    &[0],
                ]
                .concat();
                let start = [&[7, 1, 2, 3, 4, 5, 6, 8, (written % 4) as u8][..], &steps].concat();
                fs::write(program.join(&name), [&start[..], &file].concat())?;
                written += 1;
            }
        }
    }
    Ok(())
}

/// Pixels with gradients, an edge and some texture.
fn picture((width, height): (usize, usize)) -> Vec<u8> {
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let pixels = pixels.flat_map(|(x, y)| {
        let edge = if x * 2 > y + 9 { 90 } else { 0 };
        [
            x * 3 + edge,
            y * 3 + (x * y) % 29,
            200 - edge + (x ^ y) % 17,
        ]
    });
    pixels.map(|sample| (sample % 256) as u8).collect()
}
