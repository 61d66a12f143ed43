//! Conversion of element types, normalisation and layout.

use super::lanes::{Lanes, kernel};
use crate::image::pixels::{PixelShape, Pixels, make_room};
use crate::image::values::Real;
use crate::tensor::{Dtype, ImageLayout};

/// Converts bytes to floats in 0 to 1 (divided by 255, like torchvision's `to_dtype(scale=True)`),
/// in place. Floats keep their values, rounded to the new type.
pub(crate) fn to_float(pixels: &mut Pixels, dtype: Dtype) {
    to_float_with(Lanes::current(), pixels, dtype);
}

pub(super) fn to_float_with(lanes: Lanes, pixels: &mut Pixels, dtype: Dtype) {
    if pixels.shape.dtype == Dtype::U8 {
        let Pixels { u8s, f32s, .. } = pixels;
        make_room(f32s, u8s.len());
        scale(lanes, u8s, f32s);
    }
    pixels.shape.dtype = dtype;
    pixels.settle();
}

/// Computes `(x - mean) / std` per channel in single precision, in place. Bytes are first converted
/// to floats in 0 to 1.
pub(crate) fn normalize(pixels: &mut Pixels, mean: &[Real], std: &[Real]) {
    normalize_with(Lanes::current(), pixels, mean, std);
}

pub(super) fn normalize_with(lanes: Lanes, pixels: &mut Pixels, mean: &[Real], std: &[Real]) {
    if pixels.shape.dtype == Dtype::U8 {
        to_float_with(lanes, pixels, Dtype::F32);
    }
    let PixelShape {
        height,
        width,
        channels,
        layout,
        ..
    } = pixels.shape;
    let constants: Vec<(f32, f32)> = (0..channels)
        .map(|c| {
            let at = |v: &[Real]| v.get(c).or(v.first()).map_or(0.0, |v| v.0 as f32);
            (at(mean), at(std))
        })
        .collect();
    match layout {
        ImageLayout::Hwc => standardize(lanes, &mut pixels.f32s, &constants),
        ImageLayout::Chw if height * width > 0 => {
            let planes = pixels.f32s.chunks_exact_mut(height * width);
            for (plane, constants) in planes.zip(&constants) {
                standardize(lanes, plane, &[*constants]);
            }
        }
        ImageLayout::Chw => {}
    }
    pixels.settle();
}

/// Number of samples that are standardised together: whole pixels, and whole vector registers.
const TILE: usize = 48;

kernel! {
    /// Divides bytes by 255.
    fn scale(bytes: &[u8], floats: &mut [f32]) {
        for (float, byte) in floats.iter_mut().zip(bytes) {
            *float = f32::from(*byte) / 255.0;
        }
    }
}

kernel! {
    /// Subtracts the mean of its channel from each sample, and divides by the standard deviation.
    /// The number of channels, which is that of `constants`, is 1 or 3.
    fn standardize(samples: &mut [f32], constants: &[(f32, f32)]) {
        let (mut means, mut stds) = ([0.0; TILE], [1.0; TILE]);
        let places = means.iter_mut().zip(&mut stds);
        for ((mean, std), constants) in places.zip(constants.iter().cycle()) {
            (*mean, *std) = *constants;
        }
        let (tiles, rest) = samples.as_chunks_mut::<TILE>();
        for tile in tiles {
            for ((value, mean), std) in tile.iter_mut().zip(&means).zip(&stds) {
                *value = (*value - mean) / std;
            }
        }
        for ((value, mean), std) in rest.iter_mut().zip(&means).zip(&stds) {
            *value = (*value - mean) / std;
        }
    }
}

/// Repeats the channel of a gray image three times.
pub(crate) fn repeat_channel(source: &Pixels, target: &mut Pixels) {
    target.reshape(PixelShape {
        channels: 3,
        ..source.shape
    });
    let lanes = Lanes::current();
    if source.shape.dtype.is_float() {
        repeat::<f32>(lanes, &source.f32s, &mut target.f32s);
    } else {
        repeat::<u8>(lanes, &source.u8s, &mut target.u8s);
    }
}

kernel! {
    fn repeat<T: Copy>(source: &[T], target: &mut [T]) {
        let (pixels, _) = target.as_chunks_mut::<3>();
        for (pixel, value) in pixels.iter_mut().zip(source) {
            *pixel = [*value; 3];
        }
    }
}

/// Copies an image to one plane per channel.
pub(crate) fn to_chw(source: &Pixels, target: &mut Pixels) {
    target.reshape(PixelShape {
        layout: ImageLayout::Chw,
        ..source.shape
    });
    let channels = source.shape.channels;
    if source.shape.dtype.is_float() {
        planes(&source.f32s, &mut target.f32s, channels);
    } else {
        planes(&source.u8s, &mut target.u8s, channels);
    }
}

fn planes<T: Copy>(source: &[T], target: &mut [T], channels: usize) {
    let area = source.len() / channels;
    if area == 0 {
        return;
    }
    for (c, plane) in target.chunks_exact_mut(area).enumerate() {
        for (out, pixel) in plane.iter_mut().zip(source.chunks_exact(channels)) {
            *out = pixel[c];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rgb() -> Pixels {
        let mut pixels = Pixels::default();
        let shape = PixelShape {
            height: 1,
            width: 2,
            channels: 3,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
        };
        pixels.reshape(shape);
        pixels.u8s.copy_from_slice(&[0, 51, 255, 255, 102, 0]);
        pixels
    }

    #[test]
    fn floats_are_scaled_and_normalised() {
        let mut pixels = rgb();
        to_float(&mut pixels, Dtype::F32);
        assert_eq!(pixels.f32s, [0.0, 0.2, 1.0, 1.0, 0.4, 0.0]);
        let (mean, std) = ([Real(0.5)], [Real(0.25), Real(0.5), Real(1.0)]);
        normalize(&mut pixels, &mean, &std);
        assert_eq!(
            pixels.f32s,
            [-2.0, (0.2 - 0.5) / 0.5, 0.5, 2.0, (0.4 - 0.5) / 0.5, -0.5]
        );
        let mut halves = rgb();
        to_float(&mut halves, Dtype::F16);
        assert_eq!(halves.f32s[1], half::f16::from_f32(0.2).to_f32());
    }

    #[test]
    fn planes_come_apart() {
        let mut target = Pixels::default();
        to_chw(&rgb(), &mut target);
        assert_eq!(target.u8s, [0, 255, 51, 102, 255, 0]);
        assert_eq!(target.shape.layout, ImageLayout::Chw);
    }
}
