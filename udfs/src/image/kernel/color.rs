//! Brightness, contrast, saturation, hue and gray, as torchvision's tensor functions compute them
//! (`torchvision/transforms/v2/functional/_color.py`): in single precision, with bytes truncated.

use half::f16;

use super::lanes::{Lanes, kernel};
use crate::image::pixels::{PixelSample, PixelShape, Pixels, by_sample};
use crate::tensor::Dtype;

/// The ITU-R BT.601 weights of red, green and blue, with the digits that torchvision's
/// `rgb_to_grayscale` uses.
const LUMA: [f32; 3] = [0.2989, 0.587, 0.114];

/// Number of pixels that are changed together. Their channels fit into the processor's nearest
/// cache, and all changes are applied to them before the next ones.
const BLOCK: usize = 256;

#[inline]
fn luma(r: f32, g: f32, b: f32) -> f32 {
    r * LUMA[0] + g * LUMA[1] + b * LUMA[2]
}

/// A change of one property of colors, by a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Adjust {
    /// Multiplies samples by the factor.
    Brightness(f64),
    /// Moves samples away from the mean of the gray image (if the factor is above 1), or toward
    /// that mean.
    Contrast(f64),
    /// Moves samples away from the gray image (if the factor is above 1), or toward the gray image.
    /// Gray images stay unchanged.
    Saturation(f64),
    /// Rotates the hue by this fraction of a circle, -0.5 to 0.5. Gray images stay unchanged.
    Hue(f64),
}

/// Applies `changes` to `pixels` in order, in place.
pub(crate) fn adjust(pixels: &mut Pixels, changes: &[Adjust]) {
    adjust_with(Lanes::current(), pixels, changes);
}

pub(super) fn adjust_with(lanes: Lanes, pixels: &mut Pixels, changes: &[Adjust]) {
    let mut rest = changes;
    while !rest.is_empty() {
        // A change of contrast needs the mean of the image that the changes before it made.
        let mean = match rest[0] {
            Adjust::Contrast(_) => by_sample!(pixels.shape.dtype, T => mean::<T>(lanes, pixels)),
            _ => 0.0,
        };
        let later = rest[1..].iter();
        let (first, after) = rest.split_at(1 + later.take_while(|c| !c.is_contrast()).count());
        by_sample!(pixels.shape.dtype, T => change::<T>(lanes, pixels, first, mean));
        rest = after;
    }
}

impl Adjust {
    const fn is_contrast(&self) -> bool {
        matches!(self, Self::Contrast(_))
    }
}

/// The samples of some pixels as single-precision numbers, by channel. Gray pixels have one channel.
struct PixelBlock([[f32; BLOCK]; 3]);

impl PixelBlock {
    const fn new() -> Self {
        Self([[0.0; BLOCK]; 3])
    }

    #[inline]
    fn load<T: PixelSample>(&mut self, samples: &[T], channels: usize) {
        let Self([r, g, b]) = self;
        if channels == 1 {
            for (value, sample) in r.iter_mut().zip(samples) {
                *value = sample.real();
            }
            return;
        }
        let (pixels, _) = samples.as_chunks::<3>();
        for (((r, g), b), pixel) in r.iter_mut().zip(g).zip(b).zip(pixels) {
            [*r, *g, *b] = [pixel[0].real(), pixel[1].real(), pixel[2].real()];
        }
    }

    /// Stores samples, which are within the type's range and, if bytes, whole numbers.
    #[inline]
    fn store<T: PixelSample>(&self, samples: &mut [T], channels: usize) {
        let Self([r, g, b]) = self;
        if channels == 1 {
            for (sample, value) in samples.iter_mut().zip(r) {
                *sample = T::from_whole(*value);
            }
            return;
        }
        let (pixels, _) = samples.as_chunks_mut::<3>();
        for (pixel, ((r, g), b)) in pixels.iter_mut().zip(r.iter().zip(g).zip(b)) {
            *pixel = [T::from_whole(*r), T::from_whole(*g), T::from_whole(*b)];
        }
    }

    /// Replaces each sample of the first `channels` channels.
    #[inline]
    fn map(&mut self, channels: usize, map: impl Fn(f32) -> f32) {
        for channel in &mut self.0[..channels] {
            for value in channel {
                *value = map(*value);
            }
        }
    }

    /// Replaces each pixel of three channels.
    #[inline]
    fn map_pixels(&mut self, map: impl Fn([f32; 3]) -> [f32; 3]) {
        let Self([r, g, b]) = self;
        for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
            [*r, *g, *b] = map([*r, *g, *b]);
        }
    }
}

kernel! {
    /// Applies changes, of which at most the first is one of contrast, around `mean`.
    fn change<T: PixelSample>(pixels: &mut Pixels, changes: &[Adjust], mean: f32) {
        let PixelShape { channels, dtype, .. } = pixels.shape;
        let mut block = PixelBlock::new();
        for samples in T::of_mut(pixels).chunks_mut(BLOCK * channels) {
            block.load(samples, channels);
            for change in changes {
                match *change {
                    Adjust::Brightness(factor) => {
                        let factor = factor as f32;
                        block.map(channels, |v| whole::<T>((v * factor).clamp(0.0, T::TOP)));
                    }
                    Adjust::Contrast(factor) => {
                        let factor = factor as f32;
                        block.map(channels, |v| blend::<T>(v, mean, factor));
                    }
                    Adjust::Saturation(factor) if channels == 3 => {
                        let factor = factor as f32;
                        block.map_pixels(|[r, g, b]| {
                            let gray = gray::<T>(luma(r, g, b));
                            [r, g, b].map(|v| blend::<T>(v, gray, factor))
                        });
                    }
                    Adjust::Hue(turn) if channels == 3 && turn as f32 != 0.0 => {
                        let turn = turn as f32;
                        block.map_pixels(|rgb| turned::<T>(rgb, turn));
                    }
                    Adjust::Saturation(_) | Adjust::Hue(_) => {}
                }
                if dtype == Dtype::F16 {
                    block.map(channels, |v| f16::from_f32(v).to_f32());
                }
            }
            block.store(samples, channels);
        }
    }
}

kernel! {
    /// Returns the mean of the gray values of an image.
    fn mean<T: PixelSample>(pixels: &Pixels) -> f32 {
        let PixelShape { height, width, channels, .. } = pixels.shape;
        let mut block = PixelBlock::new();
        let mut sum = 0.0_f64;
        for samples in T::of(pixels).chunks(BLOCK * channels) {
            block.load(samples, channels);
            let PixelBlock([values, g, b]) = &mut block;
            if channels == 3 {
                for ((r, g), b) in values.iter_mut().zip(g).zip(b) {
                    *r = luma(*r, *g, *b);
                }
            }
            let values = &values[..samples.len() / channels];
            if T::FLOAT {
                // The sum is in the order of the pixels, so it is equal on every machine.
                values.iter().for_each(|&value| sum += f64::from(value));
            } else {
                // Sums of whole numbers are equal in every order.
                let whole = values.iter().map(|&value| gray::<T>(value) as u32).sum::<u32>();
                sum += f64::from(whole);
            }
        }
        (sum / (height * width).max(1) as f64) as f32
    }
}

/// Returns a number that is within the type's range as a sample of the type: bytes are truncated.
#[inline]
fn whole<T: PixelSample>(value: f32) -> f32 {
    if T::FLOAT { value } else { value.trunc() }
}

#[inline]
fn blend<T: PixelSample>(value: f32, other: f32, ratio: f32) -> f32 {
    whole::<T>((value * ratio + other * (1.0 - ratio)).clamp(0.0, T::TOP))
}

/// Returns the gray value of a pixel as torchvision's `adjust_contrast` and `adjust_saturation`
/// compute this value: an integer if samples are bytes.
#[inline]
fn gray<T: PixelSample>(luma: f32) -> f32 {
    if T::FLOAT { luma } else { luma.floor() }
}

/// Turns the hue of a pixel.
#[inline]
fn turned<T: PixelSample>(rgb: [f32; 3], turn: f32) -> [f32; 3] {
    // Torchvision's `to_dtype(scale=True)` from floats to bytes multiplies by `up` (255 + 1 - 1e-3)
    // and truncates.
    let (down, up) = if T::FLOAT {
        (1.0, 1.0)
    } else {
        (255.0, 255.999)
    };
    let (h, s, v) = to_hsv(rgb.map(|v| v / down));
    let turned = h + turn;
    to_rgb(turned - turned.floor(), s, v).map(|v| whole::<T>(v * up))
}

/// Returns hue, saturation and value. Without branches, the compiler computes many pixels at once.
#[inline]
fn to_hsv([r, g, b]: [f32; 3]) -> (f32, f32, f32) {
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    let range = max - min;
    let (rc, gc, bc) = ((max - r) / range, (max - g) / range, (max - b) / range);
    let green = rc + 2.0 - bc;
    let blue = gc + 4.0 - rc;
    let other = if max == g { green } else { blue };
    let h = if max == r { bc - gc } else { other };
    let h = h * (1.0 / 6.0) + 1.0;
    let h = if h >= 1.0 { h - 1.0 } else { h };
    // If the three channels are equal, torchvision's formula yields the hue 1 mod 1 = 0, in the
    // branch for red.
    let is_gray = range == 0.0;
    let h = if is_gray { 0.0 } else { h };
    let s = if is_gray { 0.0 } else { range / max };
    (h, s, max)
}

/// Returns red, green and blue of a hue in 0 to 1.
#[inline]
fn to_rgb(h: f32, s: f32, v: f32) -> [f32; 3] {
    let h6 = h * 6.0;
    let i = h6.floor();
    let sxf = s * (h6 - i);
    let q = ((1.0 - sxf) * v).clamp(0.0, 1.0);
    let t = ((sxf + (1.0 - s)) * v).clamp(0.0, 1.0);
    let p = ((1.0 - s) * v).clamp(0.0, 1.0);
    // A hue of 1 is one of 0, as is a hue that is no number.
    let i = if (1.0..6.0).contains(&i) { i } else { 0.0 };
    let pick = |values: [f32; 6]| {
        let low = if i < 1.0 { values[0] } else { values[1] };
        let middle = if i < 3.0 { values[2] } else { values[3] };
        let high = if i < 5.0 { values[4] } else { values[5] };
        let upper = if i < 4.0 { middle } else { high };
        if i < 2.0 { low } else { upper }
    };
    [
        pick([v, q, p, p, t, v]),
        pick([t, v, v, q, p, p]),
        pick([p, p, t, v, v, q]),
    ]
}

/// Converts an image to gray, with one channel.
pub(crate) fn grayscale(source: &Pixels, target: &mut Pixels) {
    grayscale_with(Lanes::current(), source, target);
}

pub(super) fn grayscale_with(lanes: Lanes, source: &Pixels, target: &mut Pixels) {
    let from = source.shape.channels;
    target.reshape(PixelShape {
        channels: 1,
        ..source.shape
    });
    by_sample!(source.shape.dtype, T => {
        gray_pixels::<T>(lanes, T::of(source), from, T::of_mut(target));
    });
}

kernel! {
    fn gray_pixels<T: PixelSample>(source: &[T], channels: usize, target: &mut [T]) {
        let mut block = PixelBlock::new();
        for (samples, out) in source.chunks(BLOCK * channels).zip(target.chunks_mut(BLOCK)) {
            block.load(samples, channels);
            let PixelBlock([values, g, b]) = &mut block;
            if channels == 3 {
                for ((r, g), b) in values.iter_mut().zip(g).zip(b) {
                    *r = whole::<T>(luma(*r, *g, *b));
                }
            }
            block.store(out, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Dtype, ImageLayout};

    fn pixel(rgb: [u8; 3]) -> Pixels {
        let mut pixels = Pixels::default();
        let shape = PixelShape {
            height: 1,
            width: 1,
            channels: 3,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
        };
        pixels.reshape(shape);
        pixels.u8s.copy_from_slice(&rgb);
        pixels
    }

    fn adjusted(rgb: [u8; 3], change: Adjust) -> Vec<u8> {
        let mut pixels = pixel(rgb);
        adjust(&mut pixels, &[change]);
        pixels.u8s
    }

    #[test]
    fn factors_one_and_zero() {
        let rgb = [10, 200, 90];
        for same in [
            Adjust::Brightness(1.0),
            Adjust::Contrast(1.0),
            Adjust::Saturation(1.0),
            Adjust::Hue(0.0),
        ] {
            assert_eq!(adjusted(rgb, same), rgb);
        }
        assert_eq!(adjusted(rgb, Adjust::Brightness(0.0)), [0, 0, 0]);
        assert_eq!(adjusted(rgb, Adjust::Brightness(1.5)), [15, 255, 135]);
        // Luma 0.2989 * 10 + 0.587 * 200 + 0.114 * 90 = 130.65.
        assert_eq!(adjusted(rgb, Adjust::Saturation(0.0)), [130, 130, 130]);
        assert_eq!(adjusted(rgb, Adjust::Contrast(0.0)), [130, 130, 130]);
    }

    #[test]
    fn hue_turns_red_to_green_and_blue() {
        assert_eq!(adjusted([255, 0, 0], Adjust::Hue(1.0 / 3.0)), [0, 255, 0]);
        assert_eq!(adjusted([255, 0, 0], Adjust::Hue(-1.0 / 3.0)), [0, 0, 255]);
        assert_eq!(adjusted([80, 80, 80], Adjust::Hue(0.3)), [80, 80, 80]);
    }

    #[test]
    fn gray_is_rounded_down() {
        let mut target = Pixels::default();
        grayscale(&pixel([10, 200, 90]), &mut target);
        assert_eq!(target.u8s, [130]);
    }
}
