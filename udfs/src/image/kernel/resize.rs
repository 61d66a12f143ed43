//! Antialiased resizing of a region of an image.
//!
//! `fast_image_resize` resizes bytes in fixed point, with the same result at every SIMD level.
//! Floats are summed in scalar form, since vector instructions would add in another order.

use std::fmt;

use fast_image_resize::images::TypedImage;
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{
    Filter as LibraryFilter, FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer,
};

use super::geometry::{Region, crop};
use super::lanes::Lanes;
use super::resize_floats::{self, Kernel, catmull_rom, lanczos3, triangle};
use crate::image::pixels::{MAX_PIXELS, PixelSample, PixelShape, Pixels, by_sample};
use crate::image::values::Interpolation;
use crate::simd::Simd;

/// A resizer with its buffers.
pub(crate) struct Resampler {
    bytes: Resizer,
    /// The image after resizing in the first of the two directions.
    between: Pixels,
    /// A copy of some rows of a region.
    band: Vec<u8>,
}

impl fmt::Debug for Resampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resampler").finish_non_exhaustive()
    }
}

impl Default for Resampler {
    fn default() -> Self {
        Self::new(Simd::current())
    }
}

impl Resampler {
    /// Creates a resizer that uses the vector instructions of `simd`.
    #[expect(unsafe_code, reason = "the library marks choosing instructions as unsafe")]
    pub(crate) fn new(simd: Simd) -> Self {
        let mut bytes = Resizer::new();
        // SAFETY: `resize_extensions` returns only sets whose `is_supported` holds on this machine.
        unsafe {
            bytes.set_cpu_extensions(simd.resize_extensions());
        }
        Self {
            bytes,
            between: Pixels::default(),
            band: Vec::new(),
        }
    }

    /// Resizes the region `from` of `source` (in height, width, channels order) to `height` x
    /// `width` pixels in `target`. Pixels of `source` outside the region do not affect the result.
    /// Fails if the region lies outside the image.
    pub(crate) fn run(
        &mut self,
        source: &mut Pixels,
        from: Region,
        (height, width): (usize, usize),
        filter: Interpolation,
        target: &mut Pixels,
    ) -> Result<(), String> {
        let shape = PixelShape {
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
        // The image between the two directions may be larger than both source and target.
        let between = (from.height as u64 * width as u64).max(from.width as u64 * height as u64);
        if between > MAX_PIXELS {
            let (h, w) = (from.height, from.width);
            return Err(format!(
                "resizing {h} x {w} to {height} x {width} takes too much memory"
            ));
        }
        let kernel: Kernel = match filter {
            Interpolation::Nearest => {
                by_sample!(shape.dtype, T => nearest::<T>(source, from, target));
                return Ok(());
            }
            Interpolation::Bilinear => (triangle, 1.0),
            Interpolation::Bicubic => (catmull_rom, 2.0),
            Interpolation::Lanczos => (lanczos3, 3.0),
        };
        if shape.dtype.is_float() {
            let between = &mut self.between.f32s;
            resize_floats::resize(source, from, target, between, kernel, Lanes::current());
            return Ok(());
        }
        let mut between = std::mem::take(&mut self.between);
        let done = self.bytes(source, from, filter, &mut between, target);
        self.between = between;
        done.map_err(|e| format!("cannot resize: {e}"))
    }

    /// Resizes bytes in one direction, then in the other.
    ///
    /// Samples are clamped to 0 to 255 between the two directions, and all filters but bilinear
    /// overshoot, so the order matters: these filters start with the width, as in Pillow and
    /// torchvision. For the bilinear filter, both orders are equal up to rounding, and starting
    /// with the height is faster.
    ///
    /// The library's generic functions are compiled once for each type of image. So every call in
    /// this file reads and writes a [`TypedImage`], the type that the library also uses for its own
    /// intermediate image.
    fn bytes(
        &mut self,
        source: &mut Pixels,
        from: Region,
        filter: Interpolation,
        between: &mut Pixels,
        target: &mut Pixels,
    ) -> Result<(), AnyError> {
        let PixelShape { height, width, .. } = target.shape;
        let at = (from.top as i64, from.left as i64);
        match (height != from.height, width != from.width) {
            (false, false) => {
                crop(source, at, (height, width), target);
                Ok(())
            }
            (true, false) => self.resize_height(source, from, filter, target),
            (false, true) => self.resize_width(source, from, filter, target),
            (true, true) if filter == Interpolation::Bilinear => {
                between.reshape(PixelShape {
                    height,
                    width: from.width,
                    ..source.shape
                });
                self.resize_height(source, from, filter, between)?;
                let whole = Region::whole(&between.shape);
                self.resize_width(between, whole, filter, target)
            }
            (true, true) => {
                between.reshape(PixelShape {
                    height: from.height,
                    width,
                    ..source.shape
                });
                self.resize_width(source, from, filter, between)?;
                let whole = Region::whole(&between.shape);
                self.resize_height(between, whole, filter, target)
            }
        }
    }

    /// Resizes the height of a region. Columns do not mix, so pixels are treated as bytes.
    fn resize_height(
        &mut self,
        source: &mut Pixels,
        from: Region,
        filter: Interpolation,
        target: &mut Pixels,
    ) -> Result<(), AnyError> {
        let channels = source.shape.channels;
        let stride = source.shape.width * channels;
        let rows = from.top * stride..(from.top + from.height) * stride;
        let part = image::<U8>(&mut source.u8s[rows], from.height, stride)?;
        let width = from.width * channels;
        let mut out = image::<U8>(&mut target.u8s, target.shape.height, width)?;
        let left = (from.left * channels) as f64;
        let options = options(filter)?.crop(left, 0.0, width as f64, from.height as f64);
        Ok(self.bytes.resize_typed(&part, &mut out, &options)?)
    }

    /// Resizes the width of a region.
    fn resize_width(
        &mut self,
        source: &mut Pixels,
        from: Region,
        filter: Interpolation,
        target: &mut Pixels,
    ) -> Result<(), AnyError> {
        let options = options(filter)?;
        if source.shape.channels == 1 {
            self.resize_rows::<U8>(source, from, &options, target)
        } else {
            self.resize_rows::<U8x3>(source, from, &options, target)
        }
    }

    fn resize_rows<P: PixelTrait>(
        &mut self,
        source: &mut Pixels,
        from: Region,
        options: &ResizeOptions,
        target: &mut Pixels,
    ) -> Result<(), AnyError> {
        let (shape, width) = (source.shape, target.shape.width);
        let (row, out_row) = (from.width * shape.channels, width * shape.channels);
        if from.width == shape.width {
            let rows = from.top * row..(from.top + from.height) * row;
            let part = image::<P>(&mut source.u8s[rows], from.height, from.width)?;
            let mut out = image::<P>(&mut target.u8s, from.height, width)?;
            return Ok(self.bytes.resize_typed(&part, &mut out, options)?);
        }
        // The library would read columns beside the region, so the region's rows are copied, a band
        // of rows at a time.
        let band = (BAND_BYTES / row).clamp(1, from.height);
        self.band.resize(band * row, 0);
        for (i, out) in target.u8s.chunks_mut(band * out_row).enumerate() {
            let height = out.len() / out_row;
            for (y, copy) in self.band.chunks_exact_mut(row).take(height).enumerate() {
                let y = from.top + i * band + y;
                let begin = (y * shape.width + from.left) * shape.channels;
                copy.copy_from_slice(&source.u8s[begin..begin + row]);
            }
            let part = image::<P>(&mut self.band, height, from.width)?;
            let mut out = image::<P>(out, height, width)?;
            self.bytes.resize_typed(&part, &mut out, options)?;
        }
        Ok(())
    }
}

/// Size, in bytes, of the band of rows copied at a time, which should stay in a processor's cache.
const BAND_BYTES: usize = 128 << 10;

type AnyError = Box<dyn std::error::Error>;

fn image<P: PixelTrait>(
    bytes: &mut [u8],
    height: usize,
    width: usize,
) -> Result<TypedImage<'_, P>, AnyError> {
    let (height, width) = (u32::try_from(height)?, u32::try_from(width)?);
    Ok(TypedImage::from_buffer(width, height, bytes)?)
}

fn options(filter: Interpolation) -> Result<ResizeOptions, AnyError> {
    let filter = match filter {
        Interpolation::Nearest | Interpolation::Bilinear => FilterType::Bilinear,
        Interpolation::Bicubic => FilterType::CatmullRom,
        // The library's own Lanczos filter calls the system's sine, which differs between machines.
        Interpolation::Lanczos => {
            FilterType::Custom(LibraryFilter::new("lanczos3-libm", lanczos3, 3.0)?)
        }
    };
    Ok(ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)))
}

/// Resizes like PyTorch's `nearest`: pixel `i` copies the source pixel `floor(i * in / out)`, with
/// the ratio in single precision.
fn nearest<T: PixelSample>(source: &Pixels, from: Region, target: &mut Pixels) {
    let PixelShape {
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
    use crate::tensor::{Dtype, ImageLayout};

    fn noise(height: usize, width: usize, channels: usize, dtype: Dtype) -> Pixels {
        let mut pixels = Pixels::default();
        pixels.reshape(PixelShape {
            height,
            width,
            channels,
            dtype,
            layout: ImageLayout::Hwc,
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
                let mut source = noise(61, 83, channels, dtype);
                for filter in [
                    Interpolation::Bilinear,
                    Interpolation::Bicubic,
                    Interpolation::Lanczos,
                    Interpolation::Nearest,
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
                                Resampler::new(simd)
                                    .run(&mut source, from, size, filter, &mut target)
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
        Resampler::default()
            .run(
                &mut source,
                from,
                (5, 5),
                Interpolation::Bilinear,
                &mut first,
            )
            .unwrap();
        for y in 0..20 {
            for x in 0..20 {
                if !(4..13).contains(&y) || !(4..13).contains(&x) {
                    source.u8s[(y * 20 + x) * 3] ^= 0xff;
                }
            }
        }
        let mut second = Pixels::default();
        Resampler::default()
            .run(
                &mut source,
                from,
                (5, 5),
                Interpolation::Bilinear,
                &mut second,
            )
            .unwrap();
        assert_eq!(first.u8s, second.u8s);
    }

    #[test]
    fn a_thin_image_cannot_take_all_memory() {
        let mut source = noise(1, 60_000, 1, Dtype::U8);
        let all = Region {
            top: 0,
            left: 0,
            height: 1,
            width: 60_000,
        };
        let mut target = Pixels::default();
        let error = Resampler::default().run(
            &mut source,
            all,
            (60_000, 2),
            Interpolation::Bicubic,
            &mut target,
        );
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
        Resampler::default()
            .run(
                &mut source,
                all,
                (1, 2),
                Interpolation::Bilinear,
                &mut target,
            )
            .unwrap();
        // The weights are 3/7, 3/7 and 1/7; a fourth weight is cut off at the border.
        let expected = [
            (0.0 * 3.0 + 0.25 * 3.0 + 0.5) / 7.0,
            (0.25 + 0.5 * 3.0 + 3.0) / 7.0,
        ];
        for (found, expected) in target.f32s.iter().zip(expected) {
            assert!((found - expected as f32).abs() < 1e-6, "{found} {expected}");
        }
        Resampler::default()
            .run(
                &mut source,
                all,
                (1, 2),
                Interpolation::Nearest,
                &mut target,
            )
            .unwrap();
        assert_eq!(target.f32s, [0.0, 0.5]);
    }
}
