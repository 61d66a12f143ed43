//! Antialiased resizing of floats: weighted sums in double precision, first along rows, then along
//! columns.
//!
//! The weights, and the order of every sum, are those of the scalar form of `fast_image_resize`,
//! which adds in the same order on every machine.

use super::geometry::Region;
use super::lanes::{Lanes, kernel};
use crate::image::pixels::Pixels;

/// A filter: its function, and the distance from the centre at which the function becomes zero.
pub(super) type Kernel = (fn(f64) -> f64, f64);

/// The triangle filter.
pub(super) fn triangle(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 { 1.0 - x } else { 0.0 }
}

/// The Catmull-Rom cubic filter.
pub(super) fn catmull_rom(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

/// The Lanczos filter with three lobes. The function calls `libm`'s sine, because the system's sine
/// differs between machines.
pub(super) fn lanczos3(x: f64) -> f64 {
    if (-3.0..3.0).contains(&x) {
        sinc(x) * sinc(x / 3.0)
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    libm::sin(x) / x
}

/// The consecutive source pixels from which one output pixel is computed: the index of the first
/// source pixel, and the weight of each source pixel. The weights sum to one.
struct WeightWindow {
    first: usize,
    weights: Vec<f64>,
}

/// Returns the window of each of `to` output pixels over `from` source pixels.
fn windows(from: usize, to: usize, (filter, support): Kernel) -> Vec<WeightWindow> {
    let scale = from as f64 / to as f64;
    let filter_scale = scale.max(1.0);
    let (radius, shrink) = (support * filter_scale, 1.0 / filter_scale);
    let window = |place: usize| {
        let centre = (place as f64 + 0.5) * scale;
        let begin = (centre - radius).floor().max(0.0) as usize;
        let end = (centre + radius).ceil().min(from as f64) as usize;
        let centre = centre - 0.5;
        let weight = |i: usize| filter((i as f64 - centre) * shrink);
        let first = (begin..end).find(|&i| weight(i) != 0.0).unwrap_or(end);
        let mut weights: Vec<f64> = (first..end).map(weight).collect();
        let mut sum = 0.0;
        for weight in &weights {
            sum += weight;
        }
        while weights.last() == Some(&0.0) {
            weights.pop();
        }
        if sum != 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        WeightWindow { first, weights }
    };
    (0..to).map(window).collect()
}

/// Resizes the region `from` of `source` to the shape of `target`. Both are floats in height,
/// width, channels order.
pub(super) fn resize(
    source: &Pixels,
    from: Region,
    target: &mut Pixels,
    between: &mut Vec<f32>,
    kernel: Kernel,
    lanes: Lanes,
) {
    let channels = source.shape.channels;
    let (height, width) = (target.shape.height, target.shape.width);
    let stride = source.shape.width * channels;
    let part = from.left * channels..(from.left + from.width) * channels;
    let rows = source.f32s.chunks_exact(stride).skip(from.top);
    let rows = rows.take(from.height).map(|row| &row[part.clone()]);
    if height == from.height {
        resize_rows(
            rows,
            &mut target.f32s,
            (from.width, width),
            channels,
            kernel,
            lanes,
        );
    } else if width == from.width {
        let rows: Vec<&[f32]> = rows.collect();
        resize_columns(&rows, &mut target.f32s, kernel, lanes);
    } else {
        between.resize(from.height * width * channels, 0.0);
        resize_rows(rows, between, (from.width, width), channels, kernel, lanes);
        let rows: Vec<&[f32]> = between.chunks_exact(width * channels).collect();
        resize_columns(&rows, &mut target.f32s, kernel, lanes);
    }
}

fn resize_rows<'a>(
    rows: impl Iterator<Item = &'a [f32]>,
    target: &mut [f32],
    (from, to): (usize, usize),
    channels: usize,
    kernel: Kernel,
    lanes: Lanes,
) {
    let targets = target.chunks_exact_mut(to * channels);
    if from == to {
        for (out, row) in targets.zip(rows) {
            out.copy_from_slice(row);
        }
        return;
    }
    let windows = windows(from, to, kernel);
    let mut line = vec![0.0; from * channels + 1];
    for (out, row) in targets.zip(rows) {
        if channels == 1 {
            sum_samples(lanes, row, out, &windows);
        } else {
            line[..row.len()].copy_from_slice(row);
            sum_pixels(lanes, &line, out, &windows);
        }
    }
}

kernel! {
    /// Computes the output samples of one row of a gray image.
    fn sum_samples(row: &[f32], out: &mut [f32], windows: &[WeightWindow]) {
        for (target, window) in out.iter_mut().zip(windows) {
            let mut sum = 0.0_f64;
            for (value, weight) in row[window.first..].iter().zip(&window.weights) {
                sum += f64::from(*value) * weight;
            }
            *target = sum as f32;
        }
    }
}

kernel! {
    /// Computes the output pixels of one row of three channels. `row` has a sample more than its
    /// pixels, because four samples are read at a time: vector registers hold a power of two.
    fn sum_pixels(row: &[f32], out: &mut [f32], windows: &[WeightWindow]) {
        let (targets, _) = out.as_chunks_mut::<3>();
        for (target, window) in targets.iter_mut().zip(windows) {
            let mut sums = [0.0_f64; 4];
            let values = row[window.first * 3..].windows(4).step_by(3);
            for (values, weight) in values.zip(&window.weights) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += f64::from(*value) * weight;
                }
            }
            *target = [sums[0] as f32, sums[1] as f32, sums[2] as f32];
        }
    }
}

fn resize_columns(rows: &[&[f32]], target: &mut [f32], kernel: Kernel, lanes: Lanes) {
    let stride = rows.first().map_or(1, |row| row.len());
    let windows = windows(rows.len(), target.len() / stride, kernel);
    for (out, window) in target.chunks_exact_mut(stride).zip(&windows) {
        sum_rows(lanes, &rows[window.first..], out, &window.weights);
    }
}

/// Number of neighbouring sums that are kept in registers while weights are added to them.
const SUMS: usize = 32;

kernel! {
    /// Adds rows, each multiplied by its weight.
    fn sum_rows(rows: &[&[f32]], out: &mut [f32], weights: &[f64]) {
        let mut from = 0;
        for out in out.chunks_mut(SUMS) {
            let mut sums = [0.0_f64; SUMS];
            for (row, weight) in rows.iter().zip(weights) {
                let values = &row[from..];
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
    use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
    use fast_image_resize::pixels::{F32, F32x3};
    use fast_image_resize::{
        CpuExtensions, Filter, FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer,
    };

    use super::*;
    use crate::draw::Draws;
    use crate::image::pixels::PixelShape;
    use crate::tensor::{Dtype, ImageLayout};

    /// Returns the result of the library's scalar form, for comparison.
    #[expect(unsafe_code, reason = "the library marks choosing instructions as unsafe")]
    fn expected<P: PixelTrait>(
        source: &Pixels,
        from: Region,
        (height, width): (usize, usize),
        filter: FilterType,
        pixel: impl Fn(&[f32]) -> P,
    ) -> Vec<P> {
        let channels = source.shape.channels;
        let pixels: Vec<P> = source.f32s.chunks_exact(channels).map(pixel).collect();
        let (rows, columns) = (source.shape.height as u32, source.shape.width as u32);
        let whole = TypedImageRef::new(columns, rows, &pixels).unwrap();
        let (top, left) = (from.top as u32, from.left as u32);
        let (h, w) = (from.height as u32, from.width as u32);
        let part = TypedCroppedImage::from_ref(&whole, left, top, w, h).unwrap();
        let mut image = TypedImage::<P>::new(width as u32, height as u32);
        let mut resizer = Resizer::new();
        // SAFETY: every machine supports the empty set of extensions.
        unsafe {
            resizer.set_cpu_extensions(CpuExtensions::None);
        }
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));
        resizer.resize_typed(&part, &mut image, &options).unwrap();
        image.pixels().to_vec()
    }

    #[test]
    fn every_bit_is_that_of_the_library() {
        let lanczos = FilterType::Custom(Filter::new("lanczos3-libm", lanczos3, 3.0).unwrap());
        let filters: [(FilterType, Kernel); 3] = [
            (FilterType::Bilinear, (triangle, 1.0)),
            (FilterType::CatmullRom, (catmull_rom, 2.0)),
            (lanczos, (lanczos3, 3.0)),
        ];
        let from = Region {
            top: 3,
            left: 5,
            height: 50,
            width: 71,
        };
        for channels in [1, 3] {
            let mut source = Pixels::default();
            source.reshape(PixelShape {
                height: 61,
                width: 83,
                channels,
                dtype: Dtype::F32,
                layout: ImageLayout::Hwc,
            });
            let mut draws = Draws::new(1, 2, 3, 4);
            for value in &mut source.f32s {
                *value = draws.normal() as f32;
            }
            for (filter, kernel) in filters {
                for size in [
                    (17, 23),
                    (50, 40),
                    (100, 71),
                    (130, 170),
                    (7, 83),
                    (1, 1),
                    (50, 71),
                ] {
                    let (height, width) = size;
                    let resized = Lanes::all().into_iter().map(|lanes| {
                        let mut target = Pixels::default();
                        target.reshape(PixelShape {
                            height,
                            width,
                            ..source.shape
                        });
                        resize(&source, from, &mut target, &mut Vec::new(), kernel, lanes);
                        target
                    });
                    let expected: Vec<f32> = if channels == 1 {
                        let pixels = expected(&source, from, size, filter, |c| F32::new(c[0]));
                        pixels.iter().map(|p| p.0).collect()
                    } else {
                        let pixel = |c: &[f32]| F32x3::new([c[0], c[1], c[2]]);
                        let pixels = expected(&source, from, size, filter, pixel);
                        pixels.iter().flat_map(|p| p.0).collect()
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
