//! Gaussian blur: a separable kernel over mirrored borders.

use super::lanes::{Lanes, kernel};
use crate::image::pixels::{PixelSample, PixelShape, Pixels, by_sample, make_room};

/// Number of neighbouring sums that are kept in registers while weights are added to them.
const SUMS: usize = 64;

/// Returns the weights of a Gaussian of standard deviation `sigma` (in pixels) at `size`
/// consecutive pixels. The weights sum to 1, as in torchvision's `_get_gaussian_kernel1d`.
pub(super) fn weights(size: usize, sigma: f64) -> Vec<f32> {
    let middle = (size as f64 - 1.0) * 0.5;
    let raw: Vec<f64> = (0..size)
        .map(|i| {
            let x = (i as f64 - middle) / sigma;
            libm::exp(-0.5 * x * x)
        })
        .collect();
    let sum: f64 = raw.iter().sum();
    raw.iter().map(|w| (w / sum) as f32).collect()
}

/// Blurs an image in place. `kernel` is (height, width), both odd; `sigma` is in pixels and above
/// zero. `lines` is memory that is reused. Fails if the image is too small to mirror half a kernel.
pub(crate) fn gaussian_blur(
    pixels: &mut Pixels,
    kernel: (usize, usize),
    sigma: f64,
    lines: &mut Vec<f32>,
) -> Result<(), String> {
    let PixelShape { height, width, .. } = pixels.shape;
    if kernel.0 / 2 >= height.max(1) || kernel.1 / 2 >= width.max(1) {
        let (h, w) = kernel;
        return Err(format!(
            "a {h} x {w} kernel is too large for an image of {height} x {width}"
        ));
    }
    let weights = (weights(kernel.0, sigma), weights(kernel.1, sigma));
    blur_with(Lanes::current(), pixels, (&weights.0, &weights.1), lines);
    Ok(())
}

pub(super) fn blur_with(
    lanes: Lanes,
    pixels: &mut Pixels,
    weights: (&[f32], &[f32]),
    lines: &mut Vec<f32>,
) {
    if pixels.shape.len() > 0 {
        by_sample!(pixels.shape.dtype, T => blur_as::<T>(lanes, pixels, weights, lines));
    }
    pixels.settle();
}

const fn mirrored(i: i64, n: usize) -> usize {
    let last = n as i64 - 1;
    let i = i.abs();
    (if i > last { 2 * last - i } else { i }) as usize
}

kernel! {
    fn blur_as<T: PixelSample>(
        pixels: &mut Pixels,
        weights: (&[f32], &[f32]),
        lines: &mut Vec<f32>,
    ) {
        let PixelShape { height, width, channels, .. } = pixels.shape;
        let (down, across) = weights;
        let stride = width * channels;
        let padded = (width + across.len() - 1) * channels;
        make_room(lines, padded + height * stride);
        let (line, blurred) = lines.split_at_mut(padded);
        let half = (across.len() / 2) as i64;
        let rows = T::of(pixels).chunks_exact(stride);
        for (row, out) in rows.zip(blurred.chunks_exact_mut(stride)) {
            for (x, pixel) in line.chunks_exact_mut(channels).enumerate() {
                let from = mirrored(x as i64 - half, width) * channels;
                for (value, source) in pixel.iter_mut().zip(&row[from..from + channels]) {
                    *value = source.real();
                }
            }
            add(out, across, |k| &line[k * channels..][..stride], |sum| sum);
        }
        let half = (down.len() / 2) as i64;
        for (y, out) in T::of_mut(pixels).chunks_exact_mut(stride).enumerate() {
            let row = |k: usize| {
                let from = mirrored(y as i64 + k as i64 - half, height) * stride;
                &blurred[from..from + stride]
            };
            add(out, down, row, T::rounded);
        }
    }
}

/// Writes to `out` the sums of rows, the `k`th of which is multiplied by the `k`th weight. It is a part
/// of kernels, and compiled for their instructions.
#[inline(always)]
fn add<'a, T: PixelSample>(
    out: &mut [T],
    weights: &[f32],
    row: impl Fn(usize) -> &'a [f32],
    finish: impl Fn(f32) -> T,
) {
    let Some(last) = out.len().checked_sub(SUMS) else {
        for (i, value) in out.iter_mut().enumerate() {
            let products = weights.iter().enumerate();
            let sum = products.fold(0.0, |sum, (k, weight)| sum + weight * row(k)[i]);
            *value = finish(sum);
        }
        return;
    };
    // The last block may overlap the one before it: whole blocks are quicker, and a sum that is
    // computed twice is the same.
    for from in (0..last).step_by(SUMS).chain([last]) {
        let mut sums = [0.0_f32; SUMS];
        for (k, &weight) in weights.iter().enumerate() {
            for (sum, value) in sums.iter_mut().zip(&row(k)[from..from + SUMS]) {
                *sum += weight * value;
            }
        }
        for (value, sum) in out[from..from + SUMS].iter_mut().zip(sums) {
            *value = finish(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Dtype, ImageLayout};

    #[test]
    fn a_point_spreads_to_the_kernel() {
        let mut pixels = Pixels::default();
        let shape = PixelShape {
            height: 5,
            width: 5,
            channels: 1,
            dtype: Dtype::F32,
            layout: ImageLayout::Hwc,
        };
        pixels.reshape(shape);
        pixels.f32s[12] = 1.0;
        gaussian_blur(&mut pixels, (3, 3), 1.0, &mut Vec::new()).unwrap();
        let w = weights(3, 1.0);
        assert!((w.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(pixels.f32s[12], w[1] * w[1]);
        assert_eq!(pixels.f32s[6], w[0] * w[0]);
        assert_eq!(pixels.f32s[0], 0.0);
    }

    #[test]
    fn flat_images_stay_and_small_ones_are_refused() {
        let mut pixels = Pixels::default();
        let shape = PixelShape {
            height: 3,
            width: 4,
            channels: 3,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
        };
        pixels.reshape(shape);
        pixels.u8s.fill(77);
        gaussian_blur(&mut pixels, (5, 5), 1.3, &mut Vec::new()).unwrap();
        assert!(pixels.u8s.iter().all(|&v| v == 77));
        assert!(gaussian_blur(&mut pixels, (7, 7), 1.3, &mut Vec::new()).is_err());
    }
}
