//! Conversion of element types, normalisation and layout.

use crate::image::pixels::{PixelShape, Pixels};
use crate::image::values::Real;
use crate::tensor::{Dtype, ImageLayout};

/// Converts bytes to floats in 0 to 1 (divided by 255, like torchvision's `to_dtype(scale=True)`),
/// in place. Floats keep their values, rounded to the new type.
pub(crate) fn to_float(pixels: &mut Pixels, dtype: Dtype) {
    if pixels.shape.dtype == Dtype::U8 {
        let bytes = std::mem::take(&mut pixels.u8s);
        pixels.f32s.clear();
        pixels
            .f32s
            .extend(bytes.iter().map(|&v| f32::from(v) / 255.0));
        pixels.u8s = bytes;
    }
    pixels.shape.dtype = dtype;
    pixels.settle();
}

/// Computes `(x - mean) / std` per channel in single precision, in place. Bytes are first converted
/// to floats in 0 to 1.
pub(crate) fn normalize(pixels: &mut Pixels, mean: &[Real], std: &[Real]) {
    if pixels.shape.dtype == Dtype::U8 {
        to_float(pixels, Dtype::F32);
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
        ImageLayout::Hwc => {
            for pixel in pixels.f32s.chunks_exact_mut(channels) {
                for (value, (mean, std)) in pixel.iter_mut().zip(&constants) {
                    *value = (*value - mean) / std;
                }
            }
        }
        ImageLayout::Chw if height * width > 0 => {
            let planes = pixels.f32s.chunks_exact_mut(height * width);
            for (plane, (mean, std)) in planes.zip(&constants) {
                for value in plane {
                    *value = (*value - mean) / std;
                }
            }
        }
        ImageLayout::Chw => {}
    }
    pixels.settle();
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
