//! Counter-clockwise rotation about the centre, like torchvision's `rotate` on tensors: each output
//! pixel is a sample of the image at the position to which the inverse rotation maps the centre of
//! the output pixel. Positions outside the image yield zeros, or the fill value.

use super::geometry::{flip_horizontal, flip_vertical, transpose};
use super::warp::{PlaceMap, warp};
use crate::image::pixels::{PixelShape, Pixels, by_sample};
use crate::image::values::{Interpolation, Real};

/// The constants of a rotation, without the angle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    /// `Nearest` or `Bilinear`; no other filter is allowed.
    pub(crate) filter: Interpolation,
    /// True if the result is large enough for the whole rotated image.
    pub(crate) expand: bool,
    /// Value of pixels that the image does not cover; `None` means zeros, and then pixels at the
    /// image's border are not weighted by the part that the image covers.
    pub(crate) fill: Option<Vec<Real>>,
}

/// Returns sine and cosine of an angle in degrees.
fn sin_cos(degrees: f64) -> (f64, f64) {
    let radians = degrees * (std::f64::consts::PI / 180.0);
    (libm::sin(radians), libm::cos(radians))
}

/// Returns the height and width of the rotated image. With `expand`, the whole image fits into
/// them.
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
    // As in torchvision, numbers are truncated to multiples of 1e-4 before rounding outward, so
    // that an excess of 1e-15 does not add a pixel.
    let cut = |v: f64| libm::trunc(v * 1e4) * 1e-4;
    let extent = |a: f64, b: f64, half: f64| {
        let reach = (a * x).abs() + (b * y).abs();
        (libm::ceil(cut(half + reach)) - libm::floor(cut(half - reach))) as usize
    };
    (extent(sin, cos, y), extent(cos, sin, x))
}

/// Rotates an image by `degrees`, counter-clockwise.
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
        target.reshape(PixelShape {
            height,
            width,
            ..source.shape
        });
        let (sin, cos) = sin_cos(degrees);
        let centre = |side: usize| side as f64 * 0.5 - 0.5;
        let map = PlaceMap {
            x: [cos, -sin, centre(source.shape.width)],
            y: [sin, cos, centre(source.shape.height)],
            divisor: None,
        };
        let fill = turn.fill.as_deref();
        by_sample!(source.shape.dtype, T => warp::<T>(source, &map, turn.filter, fill, target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Dtype, ImageLayout};

    fn image(height: usize, width: usize) -> Pixels {
        let mut pixels = Pixels::default();
        pixels.reshape(PixelShape {
            height,
            width,
            channels: 1,
            dtype: Dtype::U8,
            layout: ImageLayout::Hwc,
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
            filter: Interpolation::Nearest,
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
            filter: Interpolation::Bilinear,
            expand: true,
            fill: Some(vec![Real(9.0)]),
        };
        let mut target = Pixels::default();
        rotate(&mut image(4, 4), 45.0, &fill, &mut target);
        assert_eq!(target.u8s[0], 9);
    }
}
