//! Constants of image functions: numbers, ranges, sides, filters and color modes.

use std::hash::{Hash, Hasher};

use crate::tensor::{Dtype, ImageLayout, TensorType};

/// A finite number that is compared and hashed by its bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Real(pub(crate) f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// A closed interval of numbers.
pub(crate) type Range = (Real, Real);

/// Padding on the left, top, right and bottom, in pixels.
pub(crate) type Sides = [usize; 4];

/// Color mode of `decode_image`, which decides the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Three channels: red, green and blue.
    Rgb,
    /// One channel of luma, computed from red, green and blue.
    Gray,
    /// One channel of luma: the luma stored in the file if there is one, else computed as for
    /// `Gray`.
    Luma,
}

impl Mode {
    /// Returns the type of images decoded in this mode.
    pub(crate) const fn decoded(self) -> TensorType {
        TensorType {
            dtype: Dtype::U8,
            channels: if matches!(self, Self::Rgb) { 3 } else { 1 },
            layout: ImageLayout::Hwc,
            shape: None,
        }
    }
}

/// The way in which `decode_image` decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decoding {
    /// The color mode.
    pub mode: Mode,
    /// True if damaged data is an error.
    pub is_strict: bool,
}

/// Interpolation between pixels when an image is resized or moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Copies the nearest pixel.
    Nearest,
    /// A triangle filter, widened when shrinking (antialiased).
    Bilinear,
    /// The Catmull-Rom cubic filter (a = -0.5, as in Pillow), antialiased.
    Bicubic,
    /// The Lanczos filter with three lobes, antialiased.
    Lanczos,
}

impl Interpolation {
    /// The interpolations, by their names in SQL.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("bilinear", Self::Bilinear),
        ("nearest", Self::Nearest),
        ("bicubic", Self::Bicubic),
        ("lanczos", Self::Lanczos),
    ];
}
