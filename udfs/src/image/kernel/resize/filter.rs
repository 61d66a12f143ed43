//! The filters of antialiased resizing, and the weights that they give to source pixels.
//!
//! Filters, and the order of every operation, are those of `fast_image_resize` (and of Pillow, which it follows).

use crate::image::kernel::lanes::{Lanes, kernel};
use crate::image::values::Interpolation;

/// A weighting of source pixels by their distance from the centre.
trait Filter {
    /// Distance at which the weight becomes zero.
    const SUPPORT: f64;
    /// Returns the weight at a distance.
    fn at(x: f64) -> f64;
}

/// The filter of linear interpolation.
struct Triangle;

impl Filter for Triangle {
    const SUPPORT: f64 = 1.0;

    #[inline(always)]
    fn at(x: f64) -> f64 {
        let x = x.abs();
        if x < 1.0 { 1.0 - x } else { 0.0 }
    }
}

/// The Catmull-Rom cubic filter.
struct CatmullRom;

impl Filter for CatmullRom {
    const SUPPORT: f64 = 2.0;

    #[inline(always)]
    fn at(x: f64) -> f64 {
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
}

/// The Lanczos filter with three lobes. It calls `libm`'s sine, because the system's sine differs
/// between machines.
struct Lanczos3;

impl Filter for Lanczos3 {
    const SUPPORT: f64 = 3.0;

    fn at(x: f64) -> f64 {
        lanczos3(x)
    }
}

/// The function of [`Lanczos3`].
pub(super) fn lanczos3(x: f64) -> f64 {
    let sinc = |x: f64| {
        if x == 0.0 {
            return 1.0;
        }
        let x = x * std::f64::consts::PI;
        libm::sin(x) / x
    };
    if (-3.0..3.0).contains(&x) {
        sinc(x) * sinc(x / 3.0)
    } else {
        0.0
    }
}

/// Upper bound on the number of weights that resize `from` pixels to `to` pixels, with any filter.
pub(super) const fn most_weights(from: usize, to: usize) -> u64 {
    // An output pixel has a weight for each source pixel that is nearer than three pixels of the larger image.
    6 * from as u64 + 9 * to as u64
}

/// The consecutive source pixels of which an output pixel is the weighted sum.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// First source pixel.
    first: u32,
    /// Index after the last weight.
    end: u32,
}

/// The weights of the source pixels of each output pixel. They sum to one.
#[derive(Debug, Default)]
pub(super) struct FilterWeights {
    spans: Vec<Span>,
    values: Vec<f64>,
    /// The values in fixed point, with `precision` bits after the point.
    fixed: Vec<i16>,
    precision: u32,
}

impl FilterWeights {
    /// Computes the weights that resize `from` pixels to `to` pixels. `Nearest`, which has none, counts as `Bilinear`.
    pub(super) fn set(&mut self, lanes: Lanes, from: usize, to: usize, filter: Interpolation) {
        self.spans.clear();
        self.values.clear();
        match filter {
            Interpolation::Nearest | Interpolation::Bilinear => {
                weigh::<Triangle>(lanes, from, to, self);
            }
            Interpolation::Bicubic => weigh::<CatmullRom>(lanes, from, to, self),
            Interpolation::Lanczos => weigh::<Lanczos3>(lanes, from, to, self),
        }
    }

    /// Computes the weights in fixed point, too, with the highest precision at which none overflows
    /// (`Normalizer16` of `fast_image_resize`).
    pub(super) fn fix(&mut self, lanes: Lanes) {
        let most = self.values.iter().fold(0.0, |most: f64, &v| most.max(v));
        let overflows = |precision: &u32| (most * f64::from(2 << precision)).round() >= 32768.0;
        self.precision = (0..MAX_PRECISION).find(overflows).unwrap_or(MAX_PRECISION);
        self.fixed.resize(self.values.len(), 0);
        let scale = f64::from(1 << self.precision);
        round(lanes, &self.values, scale, &mut self.fixed);
    }

    /// Returns the first source pixel of each output pixel, and the weights of the pixels from there on.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[f64])> {
        windows(&self.spans, &self.values)
    }

    /// Returns the same in fixed point, and the number of bits after the point.
    pub(super) fn fixed(&self) -> (impl Iterator<Item = (usize, &[i16])>, u32) {
        (windows(&self.spans, &self.fixed), self.precision)
    }

    /// Number of bytes of the buffers.
    pub(super) const fn bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
            + self.values.capacity() * size_of::<f64>()
            + self.fixed.capacity() * size_of::<i16>()
    }
}

/// Largest number of bits after the point, as in the library: a sum of bytes has 8 bits before it, a sign, and a bit for
/// filters that overshoot.
const MAX_PRECISION: u32 = 21;

fn windows<'a, T>(spans: &'a [Span], values: &'a [T]) -> impl Iterator<Item = (usize, &'a [T])> {
    let mut begin = 0;
    spans.iter().map(move |span| {
        let weights = &values[begin..span.end as usize];
        begin = span.end as usize;
        (span.first as usize, weights)
    })
}

kernel! {
    /// Appends the weights of `to` output pixels over `from` source pixels.
    fn weigh<F: Filter>(from: usize, to: usize, weights: &mut FilterWeights) {
        let scale = from as f64 / to as f64;
        let filter_scale = scale.max(1.0);
        let (radius, shrink) = (F::SUPPORT * filter_scale, 1.0 / filter_scale);
        let FilterWeights { spans, values, .. } = weights;
        spans.reserve(to);
        values.reserve(to * (2 * radius.ceil() as usize + 1));
        for place in 0..to {
            let centre = (place as f64 + 0.5) * scale;
            let begin = (centre - radius).floor().max(0.0) as usize;
            let end = (centre + radius).ceil().min(from as f64) as usize;
            let centre = centre - 0.5;
            let start = values.len();
            let mut first = begin;
            let mut sum = 0.0;
            for i in begin..end {
                let weight = F::at((i as f64 - centre) * shrink);
                if values.len() == start && weight == 0.0 {
                    first = i + 1;
                } else {
                    values.push(weight);
                    sum += weight;
                }
            }
            while values.len() > start && values.last() == Some(&0.0) {
                values.pop();
            }
            if sum != 0.0 {
                values[start..].iter_mut().for_each(|weight| *weight /= sum);
            }
            spans.push(Span { first: first as u32, end: values.len() as u32 });
        }
    }
}

kernel! {
    /// Multiplies values, and rounds the products half away from zero.
    fn round(values: &[f64], scale: f64, out: &mut [i16]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = (value * scale).round() as i16;
        }
    }
}
