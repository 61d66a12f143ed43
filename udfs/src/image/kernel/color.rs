//! Brightness, contrast, saturation, hue and gray, as torchvision's tensor functions compute them
//! (`torchvision/transforms/v2/functional/_color.py`): in single precision, with bytes truncated.

use crate::image::pixels::{PixelSample, PixelShape, Pixels, by_sample};

/// The ITU-R BT.601 weights of red, green and blue, with the digits that torchvision's
/// `rgb_to_grayscale` uses.
const LUMA: [f32; 3] = [0.2989, 0.587, 0.114];

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
    for change in changes {
        by_sample!(pixels.shape.dtype, T => match *change {
            Adjust::Brightness(factor) => brightness::<T>(pixels, factor as f32),
            Adjust::Contrast(factor) => contrast::<T>(pixels, factor as f32),
            Adjust::Saturation(factor) => saturation::<T>(pixels, factor as f32),
            Adjust::Hue(factor) => hue::<T>(pixels, factor as f32),
        });
        pixels.settle();
    }
}

#[inline]
fn blend<T: PixelSample>(value: f32, other: f32, ratio: f32) -> T {
    T::truncated((value * ratio + other * (1.0 - ratio)).clamp(0.0, T::TOP))
}

fn brightness<T: PixelSample>(pixels: &mut Pixels, factor: f32) {
    for value in T::of_mut(pixels) {
        *value = T::truncated((value.real() * factor).clamp(0.0, T::TOP));
    }
}

/// Returns the gray value of a pixel as torchvision's `adjust_contrast` and `adjust_saturation`
/// compute this value: an integer if samples are bytes.
#[inline]
fn gray<T: PixelSample>(pixel: &[T]) -> f32 {
    let value = match pixel {
        [r, g, b] => luma(r.real(), g.real(), b.real()),
        [v, ..] => v.real(),
        [] => 0.0,
    };
    if T::FLOAT { value } else { libm::floorf(value) }
}

fn contrast<T: PixelSample>(pixels: &mut Pixels, factor: f32) {
    let channels = pixels.shape.channels;
    let count = pixels.shape.height * pixels.shape.width;
    // The sum is in double precision and in the order of the pixels, so the sum is equal on every
    // machine.
    let sum: f64 = T::of(pixels)
        .chunks_exact(channels)
        .map(|p| f64::from(gray(p)))
        .sum();
    let mean = (sum / count.max(1) as f64) as f32;
    for value in T::of_mut(pixels) {
        *value = blend(value.real(), mean, factor);
    }
}

fn saturation<T: PixelSample>(pixels: &mut Pixels, factor: f32) {
    if pixels.shape.channels == 1 {
        return;
    }
    for pixel in T::of_mut(pixels).chunks_exact_mut(3) {
        let gray = gray(pixel);
        for value in pixel {
            *value = blend(value.real(), gray, factor);
        }
    }
}

fn hue<T: PixelSample>(pixels: &mut Pixels, turn: f32) {
    if pixels.shape.channels == 1 || turn == 0.0 {
        return;
    }
    // Torchvision's `to_dtype(scale=True)` from floats to bytes multiplies by `up` (255 + 1 - 1e-3)
    // and truncates.
    let (down, up) = if T::FLOAT {
        (1.0, 1.0)
    } else {
        (255.0, 255.999)
    };
    for pixel in T::of_mut(pixels).chunks_exact_mut(3) {
        let rgb = [
            pixel[0].real() / down,
            pixel[1].real() / down,
            pixel[2].real() / down,
        ];
        let (h, s, v) = to_hsv(rgb);
        let turned = h + turn;
        let rgb = to_rgb(turned - libm::floorf(turned), s, v);
        for (out, value) in pixel.iter_mut().zip(rgb) {
            *out = T::truncated(value * up);
        }
    }
}

fn to_hsv([r, g, b]: [f32; 3]) -> (f32, f32, f32) {
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    let range = max - min;
    if range == 0.0 {
        // If the three channels are equal, torchvision's formula yields the hue 1 mod 1 = 0, in the
        // branch for red.
        return (0.0, 0.0, max);
    }
    let (rc, gc, bc) = ((max - r) / range, (max - g) / range, (max - b) / range);
    let h = if max == r {
        bc - gc
    } else if max == g {
        rc + 2.0 - bc
    } else {
        gc + 4.0 - rc
    };
    let h = h * (1.0 / 6.0) + 1.0;
    (if h >= 1.0 { h - 1.0 } else { h }, range / max, max)
}

fn to_rgb(h: f32, s: f32, v: f32) -> [f32; 3] {
    let h6 = h * 6.0;
    let i = libm::floorf(h6);
    let sxf = s * (h6 - i);
    let q = ((1.0 - sxf) * v).clamp(0.0, 1.0);
    let t = ((sxf + (1.0 - s)) * v).clamp(0.0, 1.0);
    let p = ((1.0 - s) * v).clamp(0.0, 1.0);
    match (i as i32).rem_euclid(6) {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

/// Converts an image to gray with `channels` equal channels. The channel of a gray image is
/// repeated.
pub(crate) fn grayscale(source: &Pixels, channels: usize, target: &mut Pixels) {
    target.reshape(PixelShape {
        channels,
        ..source.shape
    });
    by_sample!(source.shape.dtype, T => {
        let input = T::of(source).chunks_exact(source.shape.channels);
        for (pixel, out) in input.zip(T::of_mut(target).chunks_exact_mut(channels)) {
            let value = match pixel {
                [r, g, b] => T::truncated(luma(r.real(), g.real(), b.real())),
                [v, ..] => *v,
                [] => T::default(),
            };
            out.fill(value);
        }
    });
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
    fn gray_has_one_or_three_channels() {
        let mut target = Pixels::default();
        grayscale(&pixel([10, 200, 90]), 1, &mut target);
        assert_eq!(target.u8s, [130]);
        grayscale(&pixel([10, 200, 90]), 3, &mut target);
        assert_eq!(target.u8s, [130, 130, 130]);
    }
}
