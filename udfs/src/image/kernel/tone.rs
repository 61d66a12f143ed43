//! Pointwise changes of tone: solarize, posterize.

use crate::image::pixels::{PixelSample, Pixels, by_sample};

/// Inverts samples at or above `threshold` (in the image's own range), in place.
pub(crate) fn solarize(pixels: &mut Pixels, threshold: f32) {
    by_sample!(pixels.shape.dtype, T => {
        for value in T::of_mut(pixels) {
            if value.real() >= threshold {
                *value = T::truncated(T::TOP - value.real());
            }
        }
    });
    pixels.settle();
}

/// Keeps the highest `bits` bits of each sample, in place. Floats are rounded down to one of
/// `2^bits` levels.
pub(crate) fn posterize(pixels: &mut Pixels, bits: u32) {
    if pixels.shape.dtype.is_float() {
        let levels = (1_u32 << bits) as f32;
        for value in &mut pixels.f32s {
            let level = libm::floorf(*value * levels).clamp(0.0, levels - 1.0);
            *value = level * (1.0 / levels);
        }
        pixels.settle();
    } else if bits < 8 {
        let mask = !(0xff_u8 >> bits);
        for value in &mut pixels.u8s {
            *value &= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::pixels::PixelShape;
    use crate::tensor::{Dtype, ImageLayout};

    fn row(dtype: Dtype) -> Pixels {
        let mut pixels = Pixels::default();
        pixels.reshape(PixelShape {
            height: 1,
            width: 3,
            channels: 1,
            dtype,
            layout: ImageLayout::Hwc,
        });
        pixels
    }

    #[test]
    fn solarize_inverts_the_bright() {
        let mut pixels = row(Dtype::U8);
        pixels.u8s.copy_from_slice(&[127, 128, 255]);
        solarize(&mut pixels, 128.0);
        assert_eq!(pixels.u8s, [127, 127, 0]);
        let mut pixels = row(Dtype::F32);
        pixels.f32s.copy_from_slice(&[0.25, 0.5, 1.0]);
        solarize(&mut pixels, 0.5);
        assert_eq!(pixels.f32s, [0.25, 0.5, 0.0]);
    }

    #[test]
    fn posterize_keeps_high_bits() {
        let mut pixels = row(Dtype::U8);
        pixels.u8s.copy_from_slice(&[0x7f, 0x80, 0xff]);
        posterize(&mut pixels, 2);
        assert_eq!(pixels.u8s, [0x40, 0x80, 0xc0]);
        let mut pixels = row(Dtype::F32);
        pixels.f32s.copy_from_slice(&[0.3, 0.5, 1.0]);
        posterize(&mut pixels, 1);
        assert_eq!(pixels.f32s, [0.0, 0.5, 0.5]);
    }
}
