//! Antialiased resizing of floats: weighted sums in double precision.
//!
//! The order of every sum is that of the scalar form of `fast_image_resize`, which adds in the same order on every
//! machine.

use super::filter::FilterWeights;
use super::part::Part;
use crate::image::kernel::lanes::{Lanes, kernel};

/// Resizes the height: adds rows of `part`, each multiplied by its weight.
pub(super) fn resize_height(
    lanes: Lanes,
    part: Part<'_, f32>,
    out: &mut [f32],
    weights: &FilterWeights,
) {
    for (out, (first, weights)) in out.chunks_exact_mut(part.length).zip(weights.iter()) {
        add_rows(lanes, part.from(first), out, weights);
    }
}

/// Resizes the width: adds the pixels of each row of `part`, each multiplied by its weight. Pixels have 1 or 3 channels.
/// `line` is scratch.
pub(super) fn resize_width(
    lanes: Lanes,
    part: Part<'_, f32>,
    out: &mut [f32],
    channels: usize,
    weights: &FilterWeights,
    line: &mut Vec<f32>,
) {
    let length = out.len() / part.count;
    line.resize(part.length + 1, 0.0);
    for (y, out) in out.chunks_exact_mut(length).enumerate() {
        if channels == 1 {
            add_samples(lanes, part.row(y), out, weights);
        } else {
            line[..part.length].copy_from_slice(part.row(y));
            add_pixels(lanes, line, out, weights);
        }
    }
}

kernel! {
    /// Computes the output samples of one row of a gray image.
    fn add_samples(row: &[f32], out: &mut [f32], weights: &FilterWeights) {
        for (target, (first, weights)) in out.iter_mut().zip(weights.iter()) {
            let mut sum = 0.0_f64;
            for (value, weight) in row[first..].iter().zip(weights) {
                sum += f64::from(*value) * weight;
            }
            *target = sum as f32;
        }
    }
}

kernel! {
    /// Computes the output pixels of one row of three channels. `row` has a sample more than its
    /// pixels, because four samples are read at a time: vector registers hold a power of two.
    fn add_pixels(row: &[f32], out: &mut [f32], weights: &FilterWeights) {
        let (targets, _) = out.as_chunks_mut::<3>();
        for (target, (first, weights)) in targets.iter_mut().zip(weights.iter()) {
            let mut sums = [0.0_f64; 4];
            let values = row[first * 3..].windows(4).step_by(3);
            for (values, weight) in values.zip(weights) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += f64::from(*value) * weight;
                }
            }
            *target = [sums[0] as f32, sums[1] as f32, sums[2] as f32];
        }
    }
}

/// Number of neighbouring sums that are kept in registers while weights are added to them.
const SUMS: usize = 32;

kernel! {
    /// Adds as many rows as there are weights.
    fn add_rows(part: Part<'_, f32>, out: &mut [f32], weights: &[f64]) {
        let mut from = 0;
        for out in out.chunks_mut(SUMS) {
            let mut sums = [0.0_f64; SUMS];
            for (y, weight) in weights.iter().enumerate() {
                let values = &part.row(y)[from..];
                if let Some(values) = values.first_chunk::<SUMS>() {
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += f64::from(*value) * weight;
                    }
                } else {
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += f64::from(*value) * weight;
                    }
                }
            }
            for (value, sum) in out.iter_mut().zip(sums) {
                *value = sum as f32;
            }
            from += SUMS;
        }
    }
}

#[cfg(test)]
mod tests {
    use fast_image_resize::pixels::{F32, F32x3};

    use super::*;
    use crate::image::kernel::geometry::Region;
    use crate::image::kernel::resize::Resampler;
    use crate::image::kernel::resize::tests::{FILTERS, library_resize, noise};
    use crate::image::pixels::Pixels;
    use crate::tensor::Dtype;

    #[test]
    fn every_bit_is_that_of_the_library() {
        let from = Region {
            top: 3,
            left: 5,
            height: 50,
            width: 71,
        };
        for channels in [1, 3] {
            let source = noise(61, 83, channels, Dtype::F32);
            for filter in FILTERS {
                for size in [
                    (17, 23),
                    (50, 40),
                    (100, 71),
                    (130, 170),
                    (7, 83),
                    (1, 1),
                    (50, 71),
                ] {
                    let resized = Lanes::all().into_iter().map(|lanes| {
                        let mut target = Pixels::default();
                        let mut resampler = Resampler::new(lanes);
                        let done = resampler.run(&source, from, size, filter, &mut target);
                        done.unwrap();
                        target
                    });
                    let shape = source.shape;
                    let expected: Vec<f32> = if channels == 1 {
                        let pixels: Vec<F32> = source.f32s.iter().map(|&v| F32::new(v)).collect();
                        let resized = library_resize(&pixels, shape, from, &[size], filter);
                        resized.iter().map(|p| p.0).collect()
                    } else {
                        let pixels = source.f32s.as_chunks::<3>().0.iter();
                        let pixels: Vec<F32x3> = pixels.map(|&p| F32x3::new(p)).collect();
                        let resized = library_resize(&pixels, shape, from, &[size], filter);
                        resized.iter().flat_map(|p| p.0).collect()
                    };
                    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    for target in resized {
                        assert_eq!(bits(&target.f32s), bits(&expected), "{filter:?} {size:?}");
                    }
                }
            }
        }
    }
}
