//! Calls of image functions with their constants, in the form that the optimiser's rules read.
//!
//! Facts describe a function as a whole; an identity between two calls (a crop of a crop is a crop)
//! also depends on the constants of both calls.

use super::kernel::geometry::{Region, centred};
use super::values::{Decoding, Interpolation};
use crate::args::MAX_SIDE;
use crate::tensor::Dtype;

/// A rectangle of pixels, which may lie outside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rectangle {
    /// First row of pixels.
    pub top: i64,
    /// First column of pixels.
    pub left: i64,
    /// Number of rows.
    pub height: usize,
    /// Number of columns.
    pub width: usize,
}

impl Rectangle {
    /// Creates the rectangle of this height and width at a first row and column.
    pub(crate) const fn at((top, left): (i64, i64), (height, width): (usize, usize)) -> Self {
        Self {
            top,
            left,
            height,
            width,
        }
    }

    /// True if the rectangle lies within an image of this height and width.
    pub const fn is_within(&self, (height, width): (usize, usize)) -> bool {
        self.top >= 0
            && self.left >= 0
            && self.top as u64 + self.height as u64 <= height as u64
            && self.left as u64 + self.width as u64 <= width as u64
    }

    /// Returns the rectangle that the pixels of this rectangle fill after an image of this size is
    /// mirrored.
    pub const fn mirrored(self, axis: Axis, (height, width): (usize, usize)) -> Self {
        match axis {
            Axis::Horizontal => Self {
                left: width as i64 - self.left - self.width as i64,
                ..self
            },
            Axis::Vertical => Self {
                top: height as i64 - self.top - self.height as i64,
                ..self
            },
        }
    }

    /// True if `top` and `left` are within the range that the function `crop` accepts.
    pub const fn is_writable(&self) -> bool {
        let most = MAX_SIDE as i64;
        self.top >= -most && self.top <= most && self.left >= -most && self.left <= most
    }
}

impl From<Region> for Rectangle {
    fn from(region: Region) -> Self {
        let at = (region.top as i64, region.left as i64);
        Self::at(at, (region.height, region.width))
    }
}

/// The direction in which an image is mirrored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Swaps left and right.
    Horizontal,
    /// Swaps top and bottom.
    Vertical,
}

/// The meaning of a call of an image function, as far as the optimiser's rules use this meaning.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageCall {
    /// Decodes bytes to pixels.
    Decode(Decoding),
    /// Cuts out a rectangle.
    Crop(Rectangle),
    /// Cuts out the central rectangle of this height and width.
    CenterCrop(usize, usize),
    /// Mirrors the image, always or with a probability.
    Mirror(Axis),
    /// Resizes the image to a height and width.
    Resize(usize, usize, Interpolation),
    /// Resizes the image's shorter side to a size.
    ResizeShortest(usize, Interpolation),
    /// Converts samples to floats.
    ToFloat(Dtype),
    /// Subtracts a mean and divides by a standard deviation; each is one number, or one per
    /// channel.
    Normalize(Vec<f64>, Vec<f64>),
    /// Converts the image to gray, with this many equal channels.
    Grayscale(usize),
    /// Any call whose meaning no rule uses.
    Other,
}

impl ImageCall {
    /// Returns the rectangle that a crop cuts out; `None` if the call is not a crop, or is a
    /// central crop and the image's `size` is unknown.
    pub fn rectangle(&self, size: Option<(usize, usize)>) -> Option<Rectangle> {
        match (self, size) {
            (Self::Crop(rectangle), _) => Some(*rectangle),
            (&Self::CenterCrop(height, width), Some((h, w))) => Some(Rectangle {
                top: centred(h, height),
                left: centred(w, width),
                height,
                width,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_are_mirrored_about_the_middle() {
        let corner = Rectangle {
            top: 0,
            left: -2,
            height: 3,
            width: 4,
        };
        let size = (10, 8);
        assert!(!corner.is_within(size));
        let across = corner.mirrored(Axis::Horizontal, size);
        assert_eq!((across.top, across.left), (0, 6));
        assert_eq!(across.mirrored(Axis::Horizontal, size), corner);
        assert_eq!(corner.mirrored(Axis::Vertical, size).top, 7);
        let middle = ImageCall::CenterCrop(4, 4).rectangle(Some(size));
        assert!(middle.is_some_and(|r| r.is_within(size) && (r.top, r.left) == (3, 2)));
        assert_eq!(ImageCall::CenterCrop(4, 4).rectangle(None), None);
    }
}
