//! Antialiased resizing of a part of an image, by `fast_image_resize`.
//!
//! Bytes are resized in fixed point, vertically first, and agree at every SIMD level. Floats always
//! take the library's scalar form, because its vector forms add in another order.

use std::fmt;

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{F32, F32x3, U8, U8x3};
use fast_image_resize::{
    CpuExtensions, Filter as FirFilter, FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer,
};

use super::geometry::Region;
use crate::image::codec::MAX_PIXELS;
use crate::image::op::Filter;
use crate::image::pixels::{Pixels, Sample, Shape, by_sample};
use crate::simd::Simd;

/// Resizers with their buffers: one for bytes, one for floats.
pub(crate) struct Resize {
    bytes: Resizer,
    floats: Resizer,
    /// An image resized in width alone.
    between: Pixels,
}

impl fmt::Debug for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resize").finish_non_exhaustive()
    }
}

impl Default for Resize {
    fn default() -> Self {
        Self::new(Simd::current())
    }
}

impl Resize {
    /// Resizers that use the instructions of `simd`.
    #[expect(unsafe_code, reason = "the library marks choosing instructions as unsafe")]
    pub(crate) fn new(simd: Simd) -> Self {
        let (mut bytes, mut floats) = (Resizer::new(), Resizer::new());
        // SAFETY: `resize_extensions` gives only sets whose `is_supported` holds on this machine,
        // and `None` is supported everywhere.
        unsafe {
            bytes.set_cpu_extensions(simd.resize_extensions());
            floats.set_cpu_extensions(CpuExtensions::None);
        }
        Self {
            bytes,
            floats,
            between: Pixels::default(),
        }
    }

    /// Resizes the region `from` of `source` (height, width, channels order) to `height` x `width`.
    /// Pixels outside the region have no part in the result. Fails where the region lies outside
    /// the image.
    pub(crate) fn run(
        &mut self,
        source: &Pixels,
        from: Region,
        (height, width): (usize, usize),
        filter: Filter,
        target: &mut Pixels,
    ) -> Result<(), String> {
        let shape = Shape {
            height,
            width,
            ..source.shape
        };
        target.reshape(shape);
        if shape.len() == 0 {
            return Ok(());
        }
        if from.height == 0 || from.width == 0 || !from.is_within(&source.shape) {
            return Err(format!(
                "cannot resize an empty image to {height} x {width}"
            ));
        }
        // Between the two directions lies an image that is long in both.
        let between = (from.height as u64 * width as u64).max(from.width as u64 * height as u64);
        if between > MAX_PIXELS {
            let (h, w) = (from.height, from.width);
            return Err(format!(
                "resizing {h} x {w} to {height} x {width} takes too much memory"
            ));
        }
        let Some(algorithm) = algorithm(filter) else {
            by_sample!(shape.dtype, T => nearest::<T>(source, from, target));
            return Ok(());
        };
        let rough = matches!(filter, Filter::Bicubic | Filter::Lanczos);
        if rough && !shape.dtype.is_float() && height != from.height && width != from.width {
            // Bytes are cut to 0 to 255 between the two directions, and these filters overshoot, so
            // the order shows: width first, as in Pillow and torchvision. The library takes height
            // first, which for bilinear gives the same but for rounding, and is faster.
            let mut between = std::mem::take(&mut self.between);
            let done = self.run(source, from, (from.height, width), filter, &mut between);
            let whole = Region {
                top: 0,
                left: 0,
                height: from.height,
                width,
            };
            let done =
                done.and_then(|()| self.run(&between, whole, (height, width), filter, target));
            self.between = between;
            return done;
        }
        let channels = shape.channels;
        let result = match (T::of_dtype(source), channels) {
            (T::Bytes, 1) => resize_bytes::<U8>(&mut self.bytes, source, from, target, algorithm),
            (T::Bytes, _) => resize_bytes::<U8x3>(&mut self.bytes, source, from, target, algorithm),
            (T::Floats, 1) => {
                let read = |c: &[f32]| F32::new(c[0]);
                let write = |p: F32, c: &mut [f32]| c[0] = p.0;
                resize_floats(
                    &mut self.floats,
                    source,
                    from,
                    target,
                    algorithm,
                    read,
                    write,
                )
            }
            (T::Floats, _) => {
                let read = |c: &[f32]| F32x3::new([c[0], c[1], c[2]]);
                let write = |p: F32x3, c: &mut [f32]| c.copy_from_slice(&p.0);
                resize_floats(
                    &mut self.floats,
                    source,
                    from,
                    target,
                    algorithm,
                    read,
                    write,
                )
            }
        };
        result.map_err(|e| format!("cannot resize: {e}"))
    }
}

/// Which of the two buffers an image lives in.
enum T {
    Bytes,
    Floats,
}

impl T {
    const fn of_dtype(pixels: &Pixels) -> Self {
        if pixels.shape.dtype.is_float() {
            Self::Floats
        } else {
            Self::Bytes
        }
    }
}

fn algorithm(filter: Filter) -> Option<ResizeAlg> {
    Some(ResizeAlg::Convolution(match filter {
        Filter::Nearest => return None,
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Bicubic => FilterType::CatmullRom,
        // The library's own Lanczos calls the system's sine, which differs between machines.
        Filter::Lanczos => FilterType::Custom(FirFilter::new("lanczos3-libm", lanczos3, 3.0).ok()?),
    }))
}

fn lanczos3(x: f64) -> f64 {
    if !(-3.0..3.0).contains(&x) {
        return 0.0;
    }
    sinc(x) * sinc(x / 3.0)
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    libm::sin(x) / x
}

type AnyError = Box<dyn std::error::Error>;

fn resize_bytes<P: PixelTrait>(
    resizer: &mut Resizer,
    source: &Pixels,
    from: Region,
    target: &mut Pixels,
    algorithm: ResizeAlg,
) -> Result<(), AnyError> {
    let (height, width) = (target.shape.height as u32, target.shape.width as u32);
    let whole = TypedImageRef::<P>::from_buffer(
        source.shape.width as u32,
        source.shape.height as u32,
        &source.u8s,
    )?;
    let view = cropped(&whole, from)?;
    let mut image = TypedImage::<P>::from_buffer(width, height, &mut target.u8s)?;
    let options = ResizeOptions::new().resize_alg(algorithm);
    Ok(resizer.resize_typed(&view, &mut image, &options)?)
}

fn cropped<V: fast_image_resize::ImageView>(
    whole: &V,
    from: Region,
) -> Result<TypedCroppedImage<'_, V>, AnyError> {
    let Region {
        top,
        left,
        height,
        width,
    } = from;
    Ok(TypedCroppedImage::from_ref(
        whole,
        left as u32,
        top as u32,
        width as u32,
        height as u32,
    )?)
}

fn resize_floats<P: PixelTrait>(
    resizer: &mut Resizer,
    source: &Pixels,
    from: Region,
    target: &mut Pixels,
    algorithm: ResizeAlg,
    read: impl Fn(&[f32]) -> P,
    write: impl Fn(P, &mut [f32]),
) -> Result<(), AnyError> {
    let channels = source.shape.channels;
    let pixels: Vec<P> = source.f32s.chunks_exact(channels).map(read).collect();
    let whole = TypedImageRef::new(
        source.shape.width as u32,
        source.shape.height as u32,
        &pixels,
    )?;
    let view = cropped(&whole, from)?;
    let mut image = TypedImage::<P>::new(target.shape.width as u32, target.shape.height as u32);
    let options = ResizeOptions::new().resize_alg(algorithm);
    resizer.resize_typed(&view, &mut image, &options)?;
    for (pixel, out) in image
        .pixels()
        .iter()
        .zip(target.f32s.chunks_exact_mut(channels))
    {
        write(*pixel, out);
    }
    Ok(())
}

/// PyTorch's `nearest`: source index `floor(i * in / out)`, the ratio in single precision.
fn nearest<T: Sample>(source: &Pixels, from: Region, target: &mut Pixels) {
    let Shape {
        height,
        width,
        channels,
        ..
    } = target.shape;
    let stride = source.shape.width * channels;
    let place = |i: usize, ratio: f32, n: usize| ((i as f32 * ratio) as usize).min(n - 1);
    let (down, across) = (
        from.height as f32 / height as f32,
        from.width as f32 / width as f32,
    );
    let columns: Vec<usize> = (0..width)
        .map(|x| (from.left + place(x, across, from.width)) * channels)
        .collect();
    let input = T::of(source);
    let rows = T::of_mut(target).chunks_exact_mut(width * channels);
    for (y, out) in rows.enumerate() {
        let row = &input[(from.top + place(y, down, from.height)) * stride..][..stride];
        for (pixel, &x) in out.chunks_exact_mut(channels).zip(&columns) {
            pixel.copy_from_slice(&row[x..x + channels]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draws;
    use crate::tensor::{Dtype, Layout};

    fn noise(height: usize, width: usize, channels: usize, dtype: Dtype) -> Pixels {
        let mut pixels = Pixels::default();
        pixels.reshape(Shape {
            height,
            width,
            channels,
            dtype,
            layout: Layout::Hwc,
        });
        let mut draws = Draws::new(1, 2, 3, 4);
        pixels
            .u8s
            .iter_mut()
            .for_each(|v| *v = draws.next_u32() as u8);
        pixels
            .f32s
            .iter_mut()
            .for_each(|v| *v = draws.uniform() as f32);
        pixels
    }

    #[test]
    fn every_simd_level_gives_the_same_bytes() {
        for dtype in [Dtype::U8, Dtype::F32] {
            for channels in [1, 3] {
                let source = noise(61, 83, channels, dtype);
                for filter in [
                    Filter::Bilinear,
                    Filter::Bicubic,
                    Filter::Lanczos,
                    Filter::Nearest,
                ] {
                    for size in [(17, 23), (61, 40), (100, 31), (130, 170), (7, 83)] {
                        let from = Region {
                            top: 3,
                            left: 5,
                            height: 50,
                            width: 71,
                        };
                        let results: Vec<Pixels> = Simd::ALL
                            .iter()
                            .map(|&simd| {
                                let mut target = Pixels::default();
                                Resize::new(simd)
                                    .run(&source, from, size, filter, &mut target)
                                    .unwrap();
                                target
                            })
                            .collect();
                        for other in &results[1..] {
                            assert_eq!(results[0].u8s, other.u8s, "{filter:?} {channels} {size:?}");
                            let bits =
                                |p: &Pixels| p.f32s.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                            assert_eq!(bits(&results[0]), bits(other));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn pixels_outside_the_region_have_no_part() {
        let mut source = noise(20, 20, 3, Dtype::U8);
        let from = Region {
            top: 4,
            left: 4,
            height: 9,
            width: 9,
        };
        let mut first = Pixels::default();
        Resize::default()
            .run(&source, from, (5, 5), Filter::Bilinear, &mut first)
            .unwrap();
        for y in 0..20 {
            for x in 0..20 {
                if !(4..13).contains(&y) || !(4..13).contains(&x) {
                    source.u8s[(y * 20 + x) * 3] ^= 0xff;
                }
            }
        }
        let mut second = Pixels::default();
        Resize::default()
            .run(&source, from, (5, 5), Filter::Bilinear, &mut second)
            .unwrap();
        assert_eq!(first.u8s, second.u8s);
    }

    #[test]
    fn a_thin_image_cannot_take_all_memory() {
        let source = noise(1, 60_000, 1, Dtype::U8);
        let all = Region {
            top: 0,
            left: 0,
            height: 1,
            width: 60_000,
        };
        let mut target = Pixels::default();
        let error = Resize::default().run(&source, all, (60_000, 2), Filter::Bicubic, &mut target);
        assert!(error.unwrap_err().contains("too much memory"));
    }

    #[test]
    fn halving_averages_with_a_triangle() {
        let mut source = noise(1, 4, 1, Dtype::F32);
        source.f32s = vec![0.0, 0.25, 0.5, 1.0];
        let mut target = Pixels::default();
        let all = Region {
            top: 0,
            left: 0,
            height: 1,
            width: 4,
        };
        Resize::default()
            .run(&source, all, (1, 2), Filter::Bilinear, &mut target)
            .unwrap();
        // Weights 3, 3, 1 of 7, the fourth cut off at the border.
        let expected = [
            (0.0 * 3.0 + 0.25 * 3.0 + 0.5) / 7.0,
            (0.25 + 0.5 * 3.0 + 3.0) / 7.0,
        ];
        for (found, expected) in target.f32s.iter().zip(expected) {
            assert!((found - expected as f32).abs() < 1e-6, "{found} {expected}");
        }
        Resize::default()
            .run(&source, all, (1, 2), Filter::Nearest, &mut target)
            .unwrap();
        assert_eq!(target.f32s, [0.0, 0.5]);
    }
}
