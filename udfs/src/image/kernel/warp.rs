//! Samples an image at one position per pixel of the result, with zeros or a fill outside the
//! image, like torchvision's `grid_sample` on tensors.

use crate::image::pixels::{PixelSample, PixelShape, Pixels};
use crate::image::values::{Interpolation, Real};

/// A projective map from pixels of the result to positions in the image.
///
/// Columns and rows of the result are counted from the centre of the result. Columns and rows of
/// the image are counted from the centre of the image's first pixel. Each field holds a factor for
/// the column, a factor for the row, and an offset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlaceMap {
    /// Coefficients of the image's column.
    pub(crate) x: [f64; 3],
    /// Coefficients of the image's row.
    pub(crate) y: [f64; 3],
    /// Coefficients of the divisor of both column and row; `None` for an affine map.
    pub(crate) divisor: Option<[f64; 3]>,
}

impl PlaceMap {
    /// Returns the position in the image for the pixel of the result in column `bx` and row `by`.
    /// If the pixel has no such position, returns a position outside every image.
    #[inline]
    fn place(&self, bx: f64, by: f64) -> (f64, f64) {
        let at = |part: &[f64; 3]| part[0] * bx + part[1] * by + part[2];
        let (x, y) = (at(&self.x), at(&self.y));
        let Some(divisor) = &self.divisor else {
            return (x, y);
        };
        /// A coordinate outside every image.
        const FAR: f64 = 1e9;
        let divisor = at(divisor);
        let (x, y) = (x / divisor, y / divisor);
        if x.abs() < FAR && y.abs() < FAR {
            (x, y)
        } else {
            (-FAR, -FAR)
        }
    }
}

/// Fills `target`, whose shape the caller has set, with the samples of `source` at the positions to
/// which `map` maps the pixels of `target`.
///
/// `filter` is `Nearest` or `Bilinear`. Pixels that the image does not cover get `fill`, one number
/// or one per channel. If `fill` is `None`, such pixels are zero, and pixels at the image's border
/// are not weighted by the part that the image covers.
pub(crate) fn warp<T: PixelSample>(
    source: &Pixels,
    map: &PlaceMap,
    filter: Interpolation,
    fill: Option<&[Real]>,
    target: &mut Pixels,
) {
    let PixelShape {
        height,
        width,
        channels,
        ..
    } = target.shape;
    let view = SampledImage {
        samples: T::of(source),
        rows: source.shape.height as i64,
        columns: source.shape.width as i64,
        channels,
    };
    let is_filled = fill.is_some();
    let fill: Vec<f32> = (0..channels)
        .map(|c| {
            let fill = fill.unwrap_or(&[]);
            fill.get(c).or(fill.first()).map_or(0.0, |v| v.0 as f32)
        })
        .collect();
    let output = T::of_mut(target);
    for (i, pixel) in output.chunks_exact_mut(channels).enumerate() {
        let bx = (i % width) as f64 - width as f64 * 0.5 + 0.5;
        let by = (i / width) as f64 - height as f64 * 0.5 + 0.5;
        let place = map.place(bx, by);
        match filter {
            Interpolation::Nearest => view.nearest(place, &fill, pixel),
            _ => view.bilinear(place, &fill, is_filled, pixel),
        }
    }
}

/// The image that is sampled, with its dimensions.
struct SampledImage<'a, T> {
    samples: &'a [T],
    rows: i64,
    columns: i64,
    channels: usize,
}

impl<T: PixelSample> SampledImage<'_, T> {
    #[inline]
    fn is_inside(&self, x: i64, y: i64) -> bool {
        (0..self.columns).contains(&x) && (0..self.rows).contains(&y)
    }

    /// Returns the index of the first sample of the pixel in column `x` and row `y`.
    #[inline]
    fn at(&self, x: i64, y: i64) -> usize {
        (y * self.columns + x) as usize * self.channels
    }

    #[inline]
    fn nearest(&self, (x, y): (f64, f64), fill: &[f32], pixel: &mut [T]) {
        let (x, y) = (libm::rint(x) as i64, libm::rint(y) as i64);
        if self.is_inside(x, y) {
            pixel.copy_from_slice(&self.samples[self.at(x, y)..][..self.channels]);
        } else {
            for (value, fill) in pixel.iter_mut().zip(fill) {
                *value = T::truncated(*fill);
            }
        }
    }

    #[inline]
    fn bilinear(&self, (x, y): (f64, f64), fill: &[f32], is_filled: bool, pixel: &mut [T]) {
        let (x0, y0) = (libm::floor(x), libm::floor(y));
        let (fx, fy) = ((x - x0) as f32, (y - y0) as f32);
        let (x0, y0) = (x0 as i64, y0 as i64);
        let corners = [
            (x0, y0, (1.0 - fx) * (1.0 - fy)),
            (x0 + 1, y0, fx * (1.0 - fy)),
            (x0, y0 + 1, (1.0 - fx) * fy),
            (x0 + 1, y0 + 1, fx * fy),
        ];
        let mut mask = 0.0_f32;
        for &(x, y, weight) in &corners {
            if self.is_inside(x, y) {
                mask += weight;
            }
        }
        for (c, value) in pixel.iter_mut().enumerate() {
            let mut sum = 0.0_f32;
            for &(x, y, weight) in &corners {
                if self.is_inside(x, y) {
                    sum += self.samples[self.at(x, y) + c].real() * weight;
                }
            }
            if is_filled {
                // This weights `sum` by the mask a second time, as torchvision's formula does.
                sum = (sum - fill[c]) * mask + fill[c];
            }
            *value = T::rounded(sum);
        }
    }
}
