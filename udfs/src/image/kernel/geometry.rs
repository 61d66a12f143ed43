//! Moves pixels: crop, pad, flips, orientation.

use crate::image::pixels::{PixelSample, PixelShape, Pixels, by_sample};
use crate::image::values::Real;

/// A rectangle within an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    /// First row of pixels.
    pub(crate) top: usize,
    /// First column of pixels.
    pub(crate) left: usize,
    /// Number of rows.
    pub(crate) height: usize,
    /// Number of columns.
    pub(crate) width: usize,
}

impl Region {
    /// Returns the region that is the whole image.
    pub(crate) const fn whole(shape: &PixelShape) -> Self {
        Self {
            top: 0,
            left: 0,
            height: shape.height,
            width: shape.width,
        }
    }

    /// True if the region lies within the image.
    pub(crate) const fn is_within(&self, shape: &PixelShape) -> bool {
        self.top + self.height <= shape.height && self.left + self.width <= shape.width
    }
}

/// The rule for the pixels of the border that `pad` adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PadMode {
    /// Each pixel is the fill value.
    Constant,
    /// Each pixel is a copy of the nearest pixel of the image.
    Edge,
    /// The border mirrors the image, without repeating the outermost pixel of the image.
    Reflect,
    /// The border mirrors the image, and repeats the outermost pixel of the image.
    Symmetric,
}

/// Returns the offset of a central crop of `want` pixels from `have` pixels; negative if the image
/// is smaller than the crop and gets surrounded by zeros.
pub(crate) fn centred(have: usize, want: usize) -> i64 {
    if want > have {
        -(((want - have) / 2) as i64)
    } else {
        // Rounds half to even, as Python does.
        libm::rint((have - want) as f64 / 2.0) as i64
    }
}

/// Copies the rectangle at (`top`, `left`), which may lie partly or wholly outside the image.
/// Pixels outside the image are zeros.
pub(crate) fn crop(
    source: &Pixels,
    (top, left): (i64, i64),
    (height, width): (usize, usize),
    target: &mut Pixels,
) {
    target.reshape(PixelShape {
        height,
        width,
        ..source.shape
    });
    by_sample!(source.shape.dtype, T => crop_as::<T>(source, top, left, target));
}

fn crop_as<T: PixelSample>(source: &Pixels, top: i64, left: i64, target: &mut Pixels) {
    let PixelShape {
        height,
        width,
        channels,
        ..
    } = target.shape;
    let (rows, columns) = (source.shape.height as i64, source.shape.width as i64);
    let begin = left.clamp(0, columns);
    let end = (left + width as i64).clamp(begin, columns);
    let before = ((begin - left).max(0) as usize).min(width);
    let count = (end - begin) as usize;
    let input = T::of(source);
    if width == 0 {
        return;
    }
    for (y, out) in T::of_mut(target)
        .chunks_exact_mut(width * channels)
        .enumerate()
    {
        let row = top + y as i64;
        if !(0..rows).contains(&row) || count == 0 {
            out.fill(T::default());
            continue;
        }
        let from = (row * columns + begin) as usize * channels;
        let (head, rest) = out.split_at_mut(before * channels);
        let (middle, tail) = rest.split_at_mut(count * channels);
        head.fill(T::default());
        middle.copy_from_slice(&input[from..from + count * channels]);
        tail.fill(T::default());
    }
    debug_assert!(height * width * channels == target.shape.len());
}

/// Pads an image by `[left, top, right, bottom]` pixels. `fill` is one number, or one per channel,
/// in the range of the image's element type. Fails if a reflection would need more pixels than the
/// image has.
pub(crate) fn pad(
    source: &Pixels,
    sides: [usize; 4],
    fill: &[Real],
    mode: PadMode,
    target: &mut Pixels,
) -> Result<(), String> {
    let [left, top, right, bottom] = sides;
    let PixelShape { height, width, .. } = source.shape;
    let limit = |n: usize| match mode {
        PadMode::Constant => usize::MAX,
        PadMode::Edge => {
            if n == 0 {
                0
            } else {
                usize::MAX
            }
        }
        PadMode::Reflect => n.saturating_sub(1),
        PadMode::Symmetric => n,
    };
    if left.max(right) > limit(width) || top.max(bottom) > limit(height) {
        return Err(format!(
            "padding {sides:?} is too large for {height} x {width} in this mode"
        ));
    }
    target.reshape(PixelShape {
        height: height + top + bottom,
        width: width + left + right,
        ..source.shape
    });
    by_sample!(source.shape.dtype, T => pad_as::<T>(source, top, left, fill, mode, target));
    Ok(())
}

fn pad_as<T: PixelSample>(
    source: &Pixels,
    top: usize,
    left: usize,
    fill: &[Real],
    mode: PadMode,
    target: &mut Pixels,
) {
    let PixelShape {
        height,
        width,
        channels,
        ..
    } = target.shape;
    let place = |i: usize, before: usize, n: usize| -> Option<usize> {
        let (i, n) = (i as i64 - before as i64, n as i64);
        if (0..n).contains(&i) {
            return Some(i as usize);
        }
        let inside = match mode {
            PadMode::Constant => return None,
            PadMode::Edge => i.clamp(0, n - 1),
            PadMode::Reflect => {
                if i < 0 {
                    -i
                } else {
                    2 * (n - 1) - i
                }
            }
            PadMode::Symmetric => {
                if i < 0 {
                    -i - 1
                } else {
                    2 * n - 1 - i
                }
            }
        };
        Some(inside as usize)
    };
    let border: Vec<T> = (0..channels)
        .map(|c| T::truncated(fill.get(c).or(fill.first()).map_or(0.0, |v| v.0 as f32)))
        .collect();
    let columns: Vec<Option<usize>> = (0..width)
        .map(|x| place(x, left, source.shape.width))
        .collect();
    let input = T::of(source);
    let stride = source.shape.width * channels;
    let output = T::of_mut(target);
    for y in 0..height {
        let row = place(y, top, source.shape.height);
        let out = &mut output[y * width * channels..][..width * channels];
        for (pixel, column) in out.chunks_exact_mut(channels).zip(&columns) {
            match row.zip(*column) {
                Some((row, column)) => {
                    let from = row * stride + column * channels;
                    pixel.copy_from_slice(&input[from..from + channels]);
                }
                None => pixel.copy_from_slice(&border),
            }
        }
    }
}

/// Swaps left and right, in place.
pub(crate) fn flip_horizontal(pixels: &mut Pixels) {
    by_sample!(pixels.shape.dtype, T => {
        let PixelShape { width, channels, .. } = pixels.shape;
        if width > 0 {
            for row in T::of_mut(pixels).chunks_exact_mut(width * channels) {
                mirror(row, channels);
            }
        }
    });
}

fn mirror<T: Copy>(row: &mut [T], channels: usize) {
    if channels == 1 {
        row.reverse();
        return;
    }
    let width = row.len() / channels;
    for x in 0..width / 2 {
        for c in 0..channels {
            row.swap(x * channels + c, (width - 1 - x) * channels + c);
        }
    }
}

/// Swaps top and bottom, in place.
pub(crate) fn flip_vertical(pixels: &mut Pixels) {
    by_sample!(pixels.shape.dtype, T => {
        let PixelShape { height, width, channels, .. } = pixels.shape;
        let stride = width * channels;
        let values = T::of_mut(pixels);
        for y in 0..height / 2 {
            let (above, below) = values.split_at_mut((height - 1 - y) * stride);
            above[y * stride..][..stride].swap_with_slice(&mut below[..stride]);
        }
    });
}

/// Swaps rows and columns: pixel (y, x) goes to (x, y).
pub(crate) fn transpose(source: &Pixels, target: &mut Pixels) {
    let PixelShape {
        height,
        width,
        channels,
        ..
    } = source.shape;
    target.reshape(PixelShape {
        height: width,
        width: height,
        ..source.shape
    });
    by_sample!(source.shape.dtype, T => {
        let input = T::of(source);
        let output = T::of_mut(target);
        for y in 0..height {
            for x in 0..width {
                let (from, to) = ((y * width + x) * channels, (x * height + y) * channels);
                output[to..to + channels].copy_from_slice(&input[from..from + channels]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Dtype, ImageLayout};

    fn image(height: usize, width: usize, values: &[u8]) -> Pixels {
        let mut pixels = Pixels::default();
        let channels = values.len() / (height * width);
        pixels.reshape(PixelShape {
            height,
            width,
            channels,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
        });
        pixels.u8s.copy_from_slice(values);
        pixels
    }

    #[test]
    fn crops_inside_and_outside() {
        let source = image(2, 3, &[1, 2, 3, 4, 5, 6]);
        let mut target = Pixels::default();
        crop(&source, (0, 1), (2, 2), &mut target);
        assert_eq!(target.u8s, [2, 3, 5, 6]);
        crop(&source, (-1, -1), (2, 5), &mut target);
        assert_eq!(target.u8s, [0, 0, 0, 0, 0, 0, 1, 2, 3, 0]);
        crop(&source, (5, 5), (1, 2), &mut target);
        assert_eq!(target.u8s, [0, 0]);
        crop(&source, (0, -9), (1, 2), &mut target);
        assert_eq!(target.u8s, [0, 0]);
    }

    #[test]
    fn centres_are_rounded_to_even() {
        assert_eq!((centred(7, 4), centred(9, 4), centred(4, 7)), (2, 2, -1));
    }

    #[test]
    fn pads_in_every_mode() {
        let source = image(1, 3, &[1, 2, 3]);
        let mut target = Pixels::default();
        for (mode, expected) in [
            (PadMode::Constant, [9, 9, 1, 2, 3, 9]),
            (PadMode::Edge, [1, 1, 1, 2, 3, 3]),
            (PadMode::Reflect, [3, 2, 1, 2, 3, 2]),
            (PadMode::Symmetric, [2, 1, 1, 2, 3, 3]),
        ] {
            pad(&source, [2, 0, 1, 0], &[Real(9.0)], mode, &mut target).unwrap();
            assert_eq!(target.u8s, expected, "{mode:?}");
        }
        assert!(pad(&source, [3, 0, 0, 0], &[], PadMode::Reflect, &mut target).is_err());
        assert!(pad(&source, [4, 0, 0, 0], &[], PadMode::Symmetric, &mut target).is_err());
    }

    #[test]
    fn flips_and_transposes() {
        let mut pixels = image(2, 2, &[1, 10, 2, 20, 3, 30, 4, 40]);
        pixels.shape.channels = 2;
        flip_horizontal(&mut pixels);
        assert_eq!(pixels.u8s, [2, 20, 1, 10, 4, 40, 3, 30]);
        flip_vertical(&mut pixels);
        assert_eq!(pixels.u8s, [4, 40, 3, 30, 2, 20, 1, 10]);
        let mut target = Pixels::default();
        transpose(&pixels, &mut target);
        assert_eq!(target.u8s, [4, 40, 2, 20, 3, 30, 1, 10]);
    }
}
