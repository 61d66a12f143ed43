//! Antialiased resizing of bytes, in fixed point with 32-bit sums.
//!
//! The results are those of `fast_image_resize`, whichever instructions are used. They are within one unit of Pillow's,
//! whose weights have more bits.

use super::filter::FilterWeights;
#[cfg(target_arch = "x86_64")]
use super::height_x86;
use super::part::Part;
use super::row_buffers::RowBuffers;
#[cfg(target_arch = "x86_64")]
use super::width_x86;
use crate::image::kernel::lanes::Lanes;

/// Resizes the height: adds rows of `part`, each multiplied by its weight.
pub(super) fn resize_height(
    lanes: Lanes,
    part: Part<'_, u8>,
    out: &mut [u8],
    weights: &FilterWeights,
) {
    let (windows, precision) = weights.fixed();
    for (out, (first, weights)) in out.chunks_exact_mut(part.length).zip(windows) {
        add_rows(lanes, part.from(first), out, weights, precision);
    }
}

/// Number of neighbouring sums that are kept in registers while weights are added to them.
const SUMS: usize = 64;

/// Adds as many rows as there are weights.
fn add_rows(lanes: Lanes, part: Part<'_, u8>, out: &mut [u8], weights: &[i16], precision: u32) {
    #[cfg(target_arch = "x86_64")]
    if height_x86::add_rows(lanes, part, out, weights, precision) {
        return;
    }
    let _ = lanes;
    let (half, length) = (1i32 << (precision - 1), out.len());
    if length < SUMS {
        for (x, out) in out.iter_mut().enumerate() {
            let products = weights.iter().enumerate();
            let products = products.map(|(y, &w)| i32::from(part.row(y)[x]) * i32::from(w));
            *out = clip(half + products.sum::<i32>(), precision);
        }
        return;
    }
    for x in (0..length).step_by(SUMS) {
        // The last sums are computed again with those before them.
        let x = x.min(length - SUMS);
        if let Some(out) = out[x..].first_chunk_mut() {
            add_chunk(part, x, weights, (half, precision), out);
        }
    }
}

fn add_chunk(
    part: Part<'_, u8>,
    from: usize,
    weights: &[i16],
    (half, precision): (i32, u32),
    out: &mut [u8; SUMS],
) {
    let mut sums = [half; SUMS];
    for (y, &weight) in weights.iter().enumerate() {
        // A row of a known length makes the loop one of whole vectors.
        let Some(row) = part.row(y)[from..].first_chunk::<SUMS>() else {
            return;
        };
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += i32::from(*value) * i32::from(weight);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = clip(sum, precision);
    }
}

/// Rounds a sum to a byte.
#[inline(always)]
fn clip(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}

/// Resizes the width: adds the pixels of each row of `part`, each multiplied by its weight. Pixels have 1 or 3 channels.
pub(super) fn resize_width(
    lanes: Lanes,
    part: Part<'_, u8>,
    out: &mut [u8],
    channels: usize,
    weights: &FilterWeights,
    buffers: &mut RowBuffers,
) {
    #[cfg(target_arch = "x86_64")]
    if width_x86::resize_width(lanes, part, out, channels, weights, buffers) {
        return;
    }
    let _ = (lanes, buffers);
    let length = out.len() / part.count;
    for (y, out) in out.chunks_exact_mut(length).enumerate() {
        match channels {
            1 => add_pixels::<1>(part.row(y), out, weights),
            _ => add_pixels::<3>(part.row(y), out, weights),
        }
    }
}

fn add_pixels<const CHANNELS: usize>(row: &[u8], out: &mut [u8], weights: &FilterWeights) {
    let (pixels, _) = row.as_chunks::<CHANNELS>();
    let (out, _) = out.as_chunks_mut::<CHANNELS>();
    let (windows, precision) = weights.fixed();
    for (out, (first, weights)) in out.iter_mut().zip(windows) {
        let mut sums = [1i32 << (precision - 1); CHANNELS];
        for (pixel, &weight) in pixels[first..].iter().zip(weights) {
            for (sum, value) in sums.iter_mut().zip(pixel) {
                *sum += i32::from(*value) * i32::from(weight);
            }
        }
        *out = sums.map(|sum| clip(sum, precision));
    }
}

#[cfg(test)]
mod tests {
    use fast_image_resize::pixels::{U8, U8x3};
    use proptest::prelude::*;

    use super::*;
    use crate::image::kernel::geometry::Region;
    use crate::image::kernel::resize::Resampler;
    use crate::image::kernel::resize::tests::{FILTERS, library_resize, noise};
    use crate::image::pixels::Pixels;
    use crate::image::values::Interpolation;
    use crate::tensor::Dtype;

    /// Resizes with each set of instructions and with the library, and compares the bytes. The resamplers keep their
    /// buffers from call to call.
    fn compare(
        resamplers: &mut [Resampler],
        source: &Pixels,
        from: Region,
        size: (usize, usize),
        filter: Interpolation,
    ) {
        // One direction after the other, as `Resampler::run` does.
        let sizes = if filter == Interpolation::Bilinear {
            [(size.0, from.width), size]
        } else {
            [(from.height, size.1), size]
        };
        let shape = source.shape;
        let expected: Vec<u8> = if shape.channels == 1 {
            let pixels: Vec<U8> = source.u8s.iter().map(|&v| U8::new(v)).collect();
            let resized = library_resize(&pixels, shape, from, &sizes, filter);
            resized.iter().map(|p| p.0).collect()
        } else {
            let pixels = source.u8s.as_chunks::<3>().0.iter();
            let pixels: Vec<U8x3> = pixels.map(|&p| U8x3::new(p)).collect();
            let resized = library_resize(&pixels, shape, from, &sizes, filter);
            resized.iter().flat_map(|p| p.0).collect()
        };
        for resampler in resamplers {
            let mut target = Pixels::default();
            resampler
                .run(source, from, size, filter, &mut target)
                .unwrap();
            assert!(
                target.u8s == expected,
                "{from:?} to {size:?}, {filter:?}, {resampler:?}"
            );
        }
    }

    fn resamplers() -> Vec<Resampler> {
        Lanes::all().into_iter().map(Resampler::new).collect()
    }

    #[test]
    fn extreme_sizes_have_the_bytes_of_the_library() {
        let mut resamplers = resamplers();
        for (rows, columns, size) in [
            (1, 60_000, (1, 1)),
            (5000, 1, (1, 1)),
            (20, 5000, (20, 40)),
            (17, 9000, (3, 35)),
            (1, 1, (70, 70)),
            (16, 32, (16, 33)),
            (16, 32, (33, 32)),
            (15, 31, (40, 31)),
        ] {
            for channels in [1, 3] {
                let source = noise(rows, columns, channels, Dtype::U8);
                let whole = Region::whole(&source.shape);
                for filter in FILTERS {
                    compare(&mut resamplers, &source, whole, size, filter);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn every_byte_is_that_of_the_library(
            resizes in prop::collection::vec(
                (
                    (1usize..60, 1usize..90),
                    (0usize..4, 0usize..4, 0usize..4, 0usize..4),
                    (1usize..70, 1usize..90),
                    prop::sample::select(&[1, 3][..]),
                    prop::sample::select(&FILTERS[..]),
                ),
                1..4,
            ),
        ) {
            let mut resamplers = resamplers();
            for ((height, width), (top, left, bottom, right), size, channels, filter) in resizes {
                let source = noise(top + height + bottom, left + width + right, channels, Dtype::U8);
                let from = Region { top, left, height, width };
                compare(&mut resamplers, &source, from, size, filter);
            }
        }
    }
}
