//! Fills a rectangle of an image.

use super::geometry::Region;
use crate::draw::Draws;
use crate::image::pixels::{PixelSample, PixelShape, Pixels, by_sample};
use crate::image::values::Real;
use crate::tensor::ImageLayout;

/// The samples that `random_erasing` writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EraseValue {
    /// One number, or one per channel.
    Constant(Vec<Real>),
    /// Standard normal draws.
    Random,
}

/// Fills `region` of `pixels` with `value`, in place.
pub(crate) fn erase(pixels: &mut Pixels, region: Region, value: &EraseValue, draws: &mut Draws) {
    let PixelShape {
        height,
        width,
        channels,
        layout,
        dtype,
    } = pixels.shape;
    if !region.is_within(&pixels.shape) {
        return;
    }
    let index = |y: usize, x: usize, c: usize| match layout {
        ImageLayout::Hwc => (y * width + x) * channels + c,
        ImageLayout::Chw => (c * height + y) * width + x,
    };
    by_sample!(dtype, T => {
        let values = T::of_mut(pixels);
        for y in region.top..region.top + region.height {
            for x in region.left..region.left + region.width {
                for c in 0..channels {
                    values[index(y, x, c)] = match value {
                        EraseValue::Constant(fill) => constant(fill, c),
                        EraseValue::Random => T::truncated(draws.normal() as f32),
                    };
                }
            }
        }
    });
    pixels.settle();
}

fn constant<T: PixelSample>(fill: &[Real], channel: usize) -> T {
    T::truncated(
        fill.get(channel)
            .or(fill.first())
            .map_or(0.0, |v| v.0 as f32),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype;

    #[test]
    fn a_rectangle_is_filled() {
        let mut pixels = Pixels::default();
        let shape = PixelShape {
            height: 3,
            width: 3,
            channels: 1,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
        };
        pixels.reshape(shape);
        let region = Region {
            top: 1,
            left: 0,
            height: 1,
            width: 2,
        };
        let value = EraseValue::Constant(vec![Real(7.0)]);
        erase(&mut pixels, region, &value, &mut Draws::new(0, 0, 0, 0));
        assert_eq!(pixels.u8s, [0, 0, 0, 7, 7, 0, 0, 0, 0]);
    }
}
