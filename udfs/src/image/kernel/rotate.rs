//! Rotation about the centre, counter-clockwise, as torchvision's `rotate` on tensors: the inverse
//! map over pixel centres, sampled with zero or filled borders.

use super::geometry::{flip_horizontal, flip_vertical, transpose};
use crate::image::op::{Filter, Real};
use crate::image::pixels::{Pixels, Sample, Shape, by_sample};

/// How to rotate, all but the angle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    /// `Nearest` or `Bilinear`.
    pub(crate) filter: Filter,
    /// Whether the result is large enough for all of the turned image.
    pub(crate) expand: bool,
    /// Value of places that the image does not cover; zeros, unmasked, where `None`.
    pub(crate) fill: Option<Vec<Real>>,
}

/// Sine and cosine of an angle in degrees.
fn sin_cos(degrees: f64) -> (f64, f64) {
    let radians = degrees * (std::f64::consts::PI / 180.0);
    (libm::sin(radians), libm::cos(radians))
}

/// Height and width of the turned image.
pub(crate) fn turned_size(
    (height, width): (usize, usize),
    degrees: f64,
    expand: bool,
) -> (usize, usize) {
    let degrees = degrees.rem_euclid(360.0);
    if !expand || degrees == 0.0 || degrees == 180.0 {
        return (height, width);
    }
    if degrees == 90.0 || degrees == 270.0 {
        return (width, height);
    }
    let (sin, cos) = sin_cos(degrees);
    let (x, y) = (width as f64 * 0.5, height as f64 * 0.5);
    // Cut to 1e-4 before rounding outward, so that 1e-15 over does not add a pixel (torchvision).
    let cut = |v: f64| libm::trunc(v * 1e4) * 1e-4;
    let extent = |a: f64, b: f64, half: f64| {
        let reach = (a * x).abs() + (b * y).abs();
        (libm::ceil(cut(half + reach)) - libm::floor(cut(half - reach))) as usize
    };
    (extent(sin, cos, y), extent(cos, sin, x))
}

/// Rotates by `degrees`.
pub(crate) fn rotate(source: &mut Pixels, degrees: f64, turn: &Turn, target: &mut Pixels) {
    let degrees = degrees.rem_euclid(360.0);
    let square = source.shape.height == source.shape.width;
    if degrees == 0.0 || degrees == 180.0 {
        if degrees == 180.0 {
            flip_horizontal(source);
            flip_vertical(source);
        }
        std::mem::swap(source, target);
    } else if (degrees == 90.0 || degrees == 270.0) && (turn.expand || square) {
        if degrees == 90.0 {
            flip_horizontal(source);
        } else {
            flip_vertical(source);
        }
        transpose(source, target);
    } else {
        let size = (source.shape.height, source.shape.width);
        let (height, width) = turned_size(size, degrees, turn.expand);
        target.reshape(Shape {
            height,
            width,
            ..source.shape
        });
        by_sample!(source.shape.dtype, T => sample::<T>(source, degrees, turn, target));
    }
}

fn sample<T: Sample>(source: &Pixels, degrees: f64, turn: &Turn, target: &mut Pixels) {
    let Shape {
        height,
        width,
        channels,
        ..
    } = target.shape;
    let (sin, cos) = sin_cos(degrees);
    let (rows, columns) = (source.shape.height as i64, source.shape.width as i64);
    let centre = (columns as f64 * 0.5 - 0.5, rows as f64 * 0.5 - 0.5);
    let fill: Vec<f32> = (0..channels)
        .map(|c| {
            let fill = turn.fill.as_deref().unwrap_or(&[]);
            fill.get(c).or(fill.first()).map_or(0.0, |v| v.0 as f32)
        })
        .collect();
    let input = T::of(source);
    let inside = |x: i64, y: i64| (0..columns).contains(&x) && (0..rows).contains(&y);
    let at = |x: i64, y: i64| (y * columns + x) as usize * channels;
    let output = T::of_mut(target);
    for (i, pixel) in output.chunks_exact_mut(channels).enumerate() {
        let bx = (i % width) as f64 - width as f64 * 0.5 + 0.5;
        let by = (i / width) as f64 - height as f64 * 0.5 + 0.5;
        let (x, y) = (
            cos * bx - sin * by + centre.0,
            sin * bx + cos * by + centre.1,
        );
        if turn.filter == Filter::Nearest {
            let (x, y) = (libm::rint(x) as i64, libm::rint(y) as i64);
            if inside(x, y) {
                pixel.copy_from_slice(&input[at(x, y)..at(x, y) + channels]);
            } else {
                for (value, fill) in pixel.iter_mut().zip(&fill) {
                    *value = T::truncated(*fill);
                }
            }
            continue;
        }
        let (x0, y0) = (libm::floor(x), libm::floor(y));
        let (fx, fy) = ((x - x0) as f32, (y - y0) as f32);
        let (x0, y0) = (x0 as i64, y0 as i64);
        let corners = [
            (x0, y0, (1.0 - fx) * (1.0 - fy)),
            (x0 + 1, y0, fx * (1.0 - fy)),
            (x0, y0 + 1, (1.0 - fx) * fy),
            (x0 + 1, y0 + 1, fx * fy),
        ];
        let mut mask = 0.0_f32;
        for &(x, y, weight) in &corners {
            if inside(x, y) {
                mask += weight;
            }
        }
        for (c, value) in pixel.iter_mut().enumerate() {
            let mut sum = 0.0_f32;
            for &(x, y, weight) in &corners {
                if inside(x, y) {
                    sum += input[at(x, y) + c].real() * weight;
                }
            }
            if turn.fill.is_some() {
                // torchvision's own formula: the sum is already weighted by the mask once.
                sum = (sum - fill[c]) * mask + fill[c];
            }
            *value = T::rounded(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Dtype, Layout};

    fn image(height: usize, width: usize) -> Pixels {
        let mut pixels = Pixels::default();
        pixels.reshape(Shape {
            height,
            width,
            channels: 1,
            dtype: Dtype::U8,
            layout: Layout::Hwc,
        });
        pixels
            .u8s
            .iter_mut()
            .enumerate()
            .for_each(|(i, v)| *v = i as u8 + 1);
        pixels
    }

    fn turn(expand: bool) -> Turn {
        Turn {
            filter: Filter::Nearest,
            expand,
            fill: None,
        }
    }

    #[test]
    fn right_angles_are_exact() {
        let mut target = Pixels::default();
        rotate(&mut image(2, 3), 90.0, &turn(true), &mut target);
        assert_eq!((target.shape.height, target.shape.width), (3, 2));
        assert_eq!(target.u8s, [3, 6, 2, 5, 1, 4]);
        rotate(&mut image(2, 3), 270.0, &turn(true), &mut target);
        assert_eq!(target.u8s, [4, 1, 5, 2, 6, 3]);
        rotate(&mut image(2, 3), -180.0, &turn(false), &mut target);
        assert_eq!(target.u8s, [6, 5, 4, 3, 2, 1]);
        rotate(&mut image(2, 3), 360.0, &turn(false), &mut target);
        assert_eq!(target.u8s, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_general_path_agrees_with_the_exact_one() {
        let mut target = Pixels::default();
        rotate(&mut image(3, 3), 90.0 + 1e-9, &turn(false), &mut target);
        assert_eq!(target.u8s, [3, 6, 9, 2, 5, 8, 1, 4, 7]);
        rotate(&mut image(2, 4), 90.0, &turn(false), &mut target);
        assert_eq!((target.shape.height, target.shape.width), (2, 4));
        assert_eq!([target.u8s[0], target.u8s[3]], [0, 0]);
    }

    #[test]
    fn expanding_covers_the_corners() {
        assert_eq!(turned_size((10, 20), 45.0, true), (22, 22));
        assert_eq!(turned_size((10, 20), 45.0, false), (10, 20));
        let fill = Turn {
            filter: Filter::Bilinear,
            expand: true,
            fill: Some(vec![Real(9.0)]),
        };
        let mut target = Pixels::default();
        rotate(&mut image(4, 4), 45.0, &fill, &mut target);
        assert_eq!(target.u8s[0], 9);
    }
}
