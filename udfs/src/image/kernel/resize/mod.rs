//! Antialiased resizing of a region of an image.

use super::geometry::{Region, crop};
use super::lanes::Lanes;
use crate::image::pixels::{MAX_PIXELS, PixelSample, PixelShape, Pixels, by_sample};
use crate::image::values::Interpolation;

mod bytes;
mod filter;
mod floats;
#[cfg(target_arch = "x86_64")]
mod height_x86;
mod part;
mod row_buffers;
#[cfg(target_arch = "x86_64")]
mod vectors_x86;
#[cfg(target_arch = "x86_64")]
mod width_x86;

use filter::{FilterWeights, most_weights};
use part::Part;
use row_buffers::RowBuffers;

/// Largest number of weights of one direction. Images with sides of a million pixels have fewer.
const MAX_WEIGHTS: u64 = 1 << 24;

/// Upper bound on the bytes of the weights that resize a side from one number of pixels to another.
pub(crate) const fn weight_bytes(from: usize, to: usize) -> u64 {
    let each = (size_of::<f64>() + size_of::<i16>()) as u64;
    each.saturating_mul(most_weights(from, to))
}

/// A resizer with its buffers.
#[derive(Debug)]
pub(crate) struct Resampler {
    lanes: Lanes,
    weights: FilterWeights,
    /// The image after resizing in the first of the two directions.
    between: Pixels,
    rows: RowBuffers,
    line: Vec<f32>,
    /// Places of the samples that `nearest` copies.
    places: Vec<usize>,
}

impl Default for Resampler {
    fn default() -> Self {
        Self::new(Lanes::current())
    }
}

impl Resampler {
    /// Creates a resizer that uses these vector instructions.
    pub(crate) fn new(lanes: Lanes) -> Self {
        Self {
            lanes,
            weights: FilterWeights::default(),
            between: Pixels::default(),
            rows: RowBuffers::default(),
            line: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Number of bytes of the buffers.
    pub(crate) const fn bytes(&self) -> usize {
        let between = self.between.u8s.capacity() + 4 * self.between.f32s.capacity();
        let lines = 4 * self.line.capacity() + size_of::<usize>() * self.places.capacity();
        self.weights.bytes() + between + self.rows.bytes() + lines
    }

    /// Resizes the region `from` of `source` (in height, width, channels order) to `height` x
    /// `width` pixels in `target`. Pixels of `source` outside the region do not affect the result.
    /// Fails if the region lies outside the image.
    pub(crate) fn run(
        &mut self,
        source: &Pixels,
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
        // The image between the two directions, and the weights, may be larger than both source and target.
        let between = (from.height as u64 * width as u64).max(from.width as u64 * height as u64);
        let weights = most_weights(from.height, height).max(most_weights(from.width, width));
        if between > MAX_PIXELS || weights > MAX_WEIGHTS {
            let (h, w) = (from.height, from.width);
            return Err(format!(
                "resizing {h} x {w} to {height} x {width} takes too much memory"
            ));
        }
        if filter == Interpolation::Nearest {
            let places = &mut self.places;
            by_sample!(shape.dtype, T => nearest::<T>(source, from, target, places));
            return Ok(());
        }
        // Bytes are rounded and clamped between the two directions, and all filters but bilinear overshoot, so
        // the order matters: these filters start with the width, as in Pillow and torchvision. For the
        // bilinear filter, both orders are equal up to rounding, and starting with the height is faster.
        // Floats start with the width, as in the library.
        let starts_with_height = filter == Interpolation::Bilinear && !shape.dtype.is_float();
        let middle = if starts_with_height {
            (height, from.width)
        } else {
            (from.height, width)
        };
        let mut between = std::mem::take(&mut self.between);
        match (height != from.height, width != from.width) {
            (false, false) => crop(
                source,
                (from.top as i64, from.left as i64),
                (height, width),
                target,
            ),
            (true, false) => self.resize_height(source, from, filter, target),
            (false, true) => self.resize_width(source, from, filter, target),
            (true, true) => {
                between.reshape(PixelShape {
                    height: middle.0,
                    width: middle.1,
                    ..source.shape
                });
                let whole = Region::whole(&between.shape);
                if starts_with_height {
                    self.resize_height(source, from, filter, &mut between);
                    self.resize_width(&between, whole, filter, target);
                } else {
                    self.resize_width(source, from, filter, &mut between);
                    self.resize_height(&between, whole, filter, target);
                }
            }
        }
        self.between = between;
        Ok(())
    }

    /// Resizes the height of a region.
    fn resize_height(
        &mut self,
        source: &Pixels,
        from: Region,
        filter: Interpolation,
        target: &mut Pixels,
    ) {
        let (lanes, weights) = (self.lanes, &mut self.weights);
        weights.set(lanes, from.height, target.shape.height, filter);
        if source.shape.dtype.is_float() {
            let part = part_of(&source.f32s, &source.shape, from);
            floats::resize_height(lanes, part, &mut target.f32s, weights);
        } else {
            weights.fix(lanes);
            let part = part_of(&source.u8s, &source.shape, from);
            bytes::resize_height(lanes, part, &mut target.u8s, weights);
        }
    }

    /// Resizes the width of a region.
    fn resize_width(
        &mut self,
        source: &Pixels,
        from: Region,
        filter: Interpolation,
        target: &mut Pixels,
    ) {
        let (lanes, weights) = (self.lanes, &mut self.weights);
        let channels = source.shape.channels;
        weights.set(lanes, from.width, target.shape.width, filter);
        if source.shape.dtype.is_float() {
            let part = part_of(&source.f32s, &source.shape, from);
            let line = &mut self.line;
            floats::resize_width(lanes, part, &mut target.f32s, channels, weights, line);
        } else {
            weights.fix(lanes);
            let part = part_of(&source.u8s, &source.shape, from);
            let rows = &mut self.rows;
            bytes::resize_width(lanes, part, &mut target.u8s, channels, weights, rows);
        }
    }
}

/// Returns the samples of a region.
fn part_of<'a, T>(samples: &'a [T], shape: &PixelShape, region: Region) -> Part<'a, T> {
    let stride = shape.width * shape.channels;
    let start = region.top * stride + region.left * shape.channels;
    Part::new(
        samples,
        start,
        stride,
        region.width * shape.channels,
        region.height,
    )
}

/// Resizes like PyTorch's `nearest`: pixel `i` copies the source pixel `floor(i * in / out)`, with
/// the ratio in single precision. `places` is scratch.
fn nearest<T: PixelSample>(
    source: &Pixels,
    from: Region,
    target: &mut Pixels,
    places: &mut Vec<usize>,
) {
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
    places.clear();
    places.extend((0..width).map(|x| (from.left + place(x, across, from.width)) * channels));
    let input = T::of(source);
    let rows = T::of_mut(target).chunks_exact_mut(width * channels);
    for (y, out) in rows.enumerate() {
        let row = &input[(from.top + place(y, down, from.height)) * stride..][..stride];
        for (pixel, &x) in out.chunks_exact_mut(channels).zip(&*places) {
            pixel.copy_from_slice(&row[x..x + channels]);
        }
    }
}

#[cfg(test)]
mod tests {
    use fast_image_resize::images::TypedImage;
    use fast_image_resize::{
        CpuExtensions, Filter, FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer,
    };

    use super::*;
    use crate::draw::Draws;
    use crate::tensor::{Dtype, ImageLayout};

    /// The filters with weights.
    pub(super) const FILTERS: [Interpolation; 3] = [
        Interpolation::Bilinear,
        Interpolation::Bicubic,
        Interpolation::Lanczos,
    ];

    /// Resizes a region with the scalar form of `fast_image_resize`, to each of these heights and widths in turn, and
    /// returns the last image. `pixels` are those of an image of `shape`.
    #[expect(unsafe_code, reason = "the library marks choosing instructions as unsafe")]
    pub(super) fn library_resize<P: PixelTrait>(
        pixels: &[P],
        shape: PixelShape,
        from: Region,
        sizes: &[(usize, usize)],
        filter: Interpolation,
    ) -> Vec<P> {
        let filter = match filter {
            Interpolation::Nearest | Interpolation::Bilinear => FilterType::Bilinear,
            Interpolation::Bicubic => FilterType::CatmullRom,
            // The library's own Lanczos filter calls the system's sine, which differs between machines.
            Interpolation::Lanczos => {
                FilterType::Custom(Filter::new("lanczos3-libm", filter::lanczos3, 3.0).unwrap())
            }
        };
        let mut resizer = Resizer::new();
        // SAFETY: every machine supports the empty set of extensions.
        unsafe {
            resizer.set_cpu_extensions(CpuExtensions::None);
        }
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));
        let rows = pixels
            .chunks_exact(shape.width)
            .skip(from.top)
            .take(from.height);
        let part = rows.flat_map(|row| &row[from.left..from.left + from.width]);
        let part = part.copied().collect();
        let mut image =
            TypedImage::from_pixels(from.width as u32, from.height as u32, part).unwrap();
        for &(height, width) in sizes {
            let mut next = TypedImage::new(width as u32, height as u32);
            resizer.resize_typed(&image, &mut next, &options).unwrap();
            image = next;
        }
        image.pixels().to_vec()
    }

    pub(super) fn noise(height: usize, width: usize, channels: usize, dtype: Dtype) -> Pixels {
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
            .run(&source, from, (5, 5), Interpolation::Bilinear, &mut first)
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
            .run(&source, from, (5, 5), Interpolation::Bilinear, &mut second)
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
        let error = Resampler::default().run(
            &source,
            all,
            (60_000, 2),
            Interpolation::Bicubic,
            &mut target,
        );
        assert!(error.unwrap_err().contains("too much memory"));
        // 60,000,000 weights would take 600 MB.
        let source = noise(1, 10_000_000, 1, Dtype::U8);
        let all = Region {
            width: 10_000_000,
            ..all
        };
        let mut resampler = Resampler::default();
        let error = resampler.run(&source, all, (1, 2), Interpolation::Lanczos, &mut target);
        assert!(error.unwrap_err().contains("too much memory"));
        assert!(resampler.bytes() < 1 << 20);
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
            .run(&source, all, (1, 2), Interpolation::Bilinear, &mut target)
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
            .run(&source, all, (1, 2), Interpolation::Nearest, &mut target)
            .unwrap();
        assert_eq!(target.f32s, [0.0, 0.5]);
    }
}
