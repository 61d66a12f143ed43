//! Kernels written one sample after another, and tests that compare the vectorised ones with them,
//! bit by bit and with all instructions of this machine.

use half::f16;
use proptest::prelude::*;

use super::blur::{blur_with, weights};
use super::color::{Adjust, adjust_with, grayscale_with};
use super::convert::{normalize_with, to_float_with};
use super::lanes::Lanes;
use crate::image::pixels::{PixelShape, Pixels};
use crate::image::values::Real;
use crate::tensor::{Dtype, ImageLayout};

/// An image as single-precision numbers, and the rules of its element type.
#[derive(Debug, Clone)]
struct Naive {
    shape: PixelShape,
    samples: Vec<f32>,
}

impl Naive {
    fn of(pixels: &Pixels) -> Self {
        let samples = match pixels.shape.dtype {
            Dtype::U8 => pixels.u8s.iter().map(|&v| f32::from(v)).collect(),
            Dtype::F16 | Dtype::F32 => pixels.f32s.clone(),
        };
        let shape = pixels.shape;
        Self { shape, samples }
    }

    fn bits(&self) -> Vec<u32> {
        let bits = |v: &f32| if v.is_nan() { u32::MAX } else { v.to_bits() };
        self.samples.iter().map(bits).collect()
    }

    fn top(&self) -> f32 {
        if self.shape.dtype == Dtype::U8 {
            255.0
        } else {
            1.0
        }
    }

    /// Converts a number to the element type as torchvision's color functions do.
    fn truncated(&self, value: f32) -> f32 {
        match self.shape.dtype {
            Dtype::U8 => f32::from(value as u8),
            Dtype::F16 => f16::from_f32(value).to_f32(),
            Dtype::F32 => value,
        }
    }

    fn gray(&self, pixel: &[f32]) -> f32 {
        match *pixel {
            [r, g, b] => r * 0.2989 + g * 0.587 + b * 0.114,
            _ => pixel[0],
        }
    }

    /// The gray value of a pixel as changes of contrast and saturation use it.
    fn whole_gray(&self, pixel: &[f32]) -> f32 {
        let gray = self.gray(pixel);
        if self.shape.dtype == Dtype::U8 {
            gray.floor()
        } else {
            gray
        }
    }

    fn blend(&self, value: f32, other: f32, ratio: f32) -> f32 {
        self.truncated((value * ratio + other * (1.0 - ratio)).clamp(0.0, self.top()))
    }

    fn adjust(&mut self, change: Adjust) {
        let channels = self.shape.channels;
        let of = self.clone();
        let pixels = self.samples.chunks_exact_mut(channels);
        match change {
            Adjust::Brightness(factor) => pixels.flatten().for_each(|v| {
                *v = of.truncated((*v * factor as f32).clamp(0.0, of.top()));
            }),
            Adjust::Contrast(factor) => {
                let grays = of
                    .samples
                    .chunks_exact(channels)
                    .map(|p| f64::from(of.whole_gray(p)));
                let count = (of.shape.height * of.shape.width).max(1) as f64;
                let mean = (grays.sum::<f64>() / count) as f32;
                pixels
                    .flatten()
                    .for_each(|v| *v = of.blend(*v, mean, factor as f32));
            }
            Adjust::Saturation(factor) if channels == 3 => pixels.for_each(|pixel| {
                let gray = of.whole_gray(pixel);
                pixel
                    .iter_mut()
                    .for_each(|v| *v = of.blend(*v, gray, factor as f32));
            }),
            Adjust::Hue(turn) if channels == 3 && turn as f32 != 0.0 => pixels.for_each(|pixel| {
                let (down, up) = if of.shape.dtype == Dtype::U8 {
                    (255.0, 255.999)
                } else {
                    (1.0, 1.0)
                };
                let turned = turned(
                    [pixel[0] / down, pixel[1] / down, pixel[2] / down],
                    turn as f32,
                );
                pixel.copy_from_slice(&turned.map(|v| of.truncated(v * up)));
            }),
            Adjust::Saturation(_) | Adjust::Hue(_) => {}
        }
    }

    /// Adds the weighted neighbours of each sample, in one direction.
    fn blurred(&self, weights: &[f32], is_down: bool) -> Vec<f32> {
        let PixelShape {
            height,
            width,
            channels,
            ..
        } = self.shape;
        let mirrored = |i: i64, n: usize| {
            let last = n as i64 - 1;
            (last - (last - i.abs()).abs()) as usize
        };
        let half = (weights.len() / 2) as i64;
        let mut out = Vec::new();
        for at in 0..self.samples.len() {
            let (y, x, c) = (at / channels / width, at / channels % width, at % channels);
            let mut sum = 0.0_f32;
            for (k, weight) in weights.iter().enumerate() {
                let step = k as i64 - half;
                let (y, x) = if is_down {
                    (mirrored(y as i64 + step, height), x)
                } else {
                    (y, mirrored(x as i64 + step, width))
                };
                sum += weight * self.samples[(y * width + x) * channels + c];
            }
            out.push(sum);
        }
        out
    }

    fn blur(&mut self, weights: (&[f32], &[f32])) {
        self.samples = self.blurred(weights.1, false);
        self.samples = self.blurred(weights.0, true);
        let round = |v: &mut f32| {
            *v = match self.shape.dtype {
                Dtype::U8 => f32::from(libm::rintf(*v) as u8),
                Dtype::F16 => f16::from_f32(*v).to_f32(),
                Dtype::F32 => *v,
            }
        };
        self.samples.iter_mut().for_each(round);
    }
}

/// Turns the hue of a pixel of 0 to 1, as torchvision's `_rgb_to_hsv` and `_hsv_to_rgb` do.
fn turned([r, g, b]: [f32; 3], turn: f32) -> [f32; 3] {
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    let range = max - min;
    let (h, s) = if range == 0.0 {
        (0.0, 0.0)
    } else {
        let (rc, gc, bc) = ((max - r) / range, (max - g) / range, (max - b) / range);
        let h = if max == r {
            bc - gc
        } else if max == g {
            rc + 2.0 - bc
        } else {
            gc + 4.0 - rc
        };
        let h = h * (1.0 / 6.0) + 1.0;
        (if h >= 1.0 { h - 1.0 } else { h }, range / max)
    };
    let turned = h + turn;
    let h6 = (turned - turned.floor()) * 6.0;
    let i = h6.floor();
    let sxf = s * (h6 - i);
    let q = ((1.0 - sxf) * max).clamp(0.0, 1.0);
    let t = ((sxf + (1.0 - s)) * max).clamp(0.0, 1.0);
    let p = ((1.0 - s) * max).clamp(0.0, 1.0);
    match (i as i32).rem_euclid(6) {
        0 => [max, t, p],
        1 => [q, max, p],
        2 => [p, max, t],
        3 => [p, q, max],
        4 => [t, p, max],
        _ => [max, p, q],
    }
}

/// Returns images of all element types, whose sizes are no multiples of a register's. Floats lie
/// mostly in 0 to 1; some are equal, and some are far outside or no numbers.
fn image() -> impl Strategy<Value = Pixels> {
    let dtypes = [Dtype::U8, Dtype::F16, Dtype::F32];
    let shape = (
        1_usize..24,
        1_usize..90,
        prop::sample::select(vec![1_usize, 3]),
        prop::sample::select(dtypes.to_vec()),
    );
    shape.prop_flat_map(|(height, width, channels, dtype)| {
        let sample = prop_oneof![
            20 => 0.0_f32..1.0,
            4 => Just(0.5_f32),
            1 => -3.0_f32..3.0,
            1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, 0.0, -0.0]),
        ];
        prop::collection::vec(sample, height * width * channels).prop_map(move |samples| {
            let mut pixels = Pixels::default();
            pixels.reshape(PixelShape {
                height,
                width,
                channels,
                dtype,
                layout: ImageLayout::Hwc,
            });
            match dtype {
                Dtype::U8 => pixels.u8s = samples.iter().map(|v| (v * 256.0) as u8).collect(),
                Dtype::F16 | Dtype::F32 => pixels.f32s = samples,
            }
            pixels.settle();
            pixels
        })
    })
}

fn change() -> impl Strategy<Value = Adjust> {
    prop_oneof![
        (0.0_f64..2.0).prop_map(Adjust::Brightness),
        (0.0_f64..2.0).prop_map(Adjust::Contrast),
        (0.0_f64..2.0).prop_map(Adjust::Saturation),
        (-0.5_f64..0.5).prop_map(Adjust::Hue),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn colors_change_as_one_by_one(pixels in image(), changes in prop::collection::vec(change(), 0..6)) {
        let mut expected = Naive::of(&pixels);
        changes.iter().for_each(|change| expected.adjust(*change));
        for lanes in Lanes::all() {
            let mut found = pixels.clone();
            adjust_with(lanes, &mut found, &changes);
            prop_assert_eq!(Naive::of(&found).bits(), expected.bits(), "{:?}", lanes);
        }
    }

    #[test]
    fn pixels_become_gray_as_one_by_one(pixels in image()) {
        let mut expected = Naive::of(&pixels);
        let grays = expected.samples.chunks_exact(pixels.shape.channels);
        expected.samples = grays.map(|p| expected.truncated(expected.gray(p))).collect();
        for lanes in Lanes::all() {
            let mut found = Pixels::default();
            grayscale_with(lanes, &pixels, &mut found);
            found.settle();
            prop_assert_eq!(Naive::of(&found).bits(), expected.bits(), "{:?}", lanes);
        }
    }

    #[test]
    fn images_are_blurred_as_one_by_one(
        pixels in image(),
        halves in (0_usize..12, 0_usize..12),
        sigma in 0.1_f64..3.0,
    ) {
        let PixelShape { height, width, .. } = pixels.shape;
        let weights = [halves.0.min(height - 1), halves.1.min(width - 1)].map(|half| weights(2 * half + 1, sigma));
        let weights = (&*weights[0], &*weights[1]);
        let mut expected = Naive::of(&pixels);
        expected.blur(weights);
        for lanes in Lanes::all() {
            let mut found = pixels.clone();
            blur_with(lanes, &mut found, weights, &mut vec![7.0; 9]);
            prop_assert_eq!(Naive::of(&found).bits(), expected.bits(), "{:?}", lanes);
        }
    }

    #[test]
    fn samples_are_normalised_as_one_by_one(pixels in image(), mean in any::<[f32; 3]>(), std in any::<[f32; 3]>()) {
        let reals = |v: [f32; 3]| v.map(|v| Real(f64::from(v)));
        let channels = pixels.shape.channels;
        let is_bytes = pixels.shape.dtype == Dtype::U8;
        let mut scaled = Naive::of(&pixels);
        if is_bytes {
            scaled.samples.iter_mut().for_each(|v| *v /= 255.0);
            scaled.shape.dtype = Dtype::F32;
        }
        let mut expected = scaled.clone();
        for (at, value) in scaled.samples.iter().enumerate() {
            let value = (value - mean[at % channels]) / std[at % channels];
            expected.samples[at] = expected.truncated(value);
        }
        for lanes in Lanes::all() {
            let mut found = pixels.clone();
            to_float_with(lanes, &mut found, scaled.shape.dtype);
            prop_assert_eq!(Naive::of(&found).bits(), scaled.bits(), "{:?}", lanes);
            let mut found = pixels.clone();
            normalize_with(lanes, &mut found, &reals(mean), &reals(std));
            prop_assert_eq!(Naive::of(&found).bits(), expected.bits(), "{:?}", lanes);
        }
    }
}
