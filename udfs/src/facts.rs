//! What the optimiser may assume of a function.

/// Whether a function's value depends on draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purity {
    /// A function of its arguments.
    Pure,
    /// A function of its arguments and of the draws of its stream for the row.
    Random,
}

/// How a function's output relates to the pixels of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algebra {
    /// Not a function over images, or one that reads more than pixels.
    Opaque,
    /// Encoded bytes to pixels.
    Decode,
    /// Each output pixel depends on the input pixel at the same place alone.
    Pointwise,
    /// Each output pixel is a copy of the input pixel at a place that does not depend on pixels.
    Select,
    /// Mixes pixels by place, or adds others.
    Spatial,
    /// Each output pixel may depend on every input pixel.
    Global,
    /// Same values in another memory layout or element type.
    Layout,
}

/// How a function's result depends on the scale of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// It does not.
    Free,
    /// It has constants on that scale: a threshold, a fill.
    Constants,
    /// It takes samples to lie in the range of their type: 0 to 255 for bytes, 0 to 1 for floats.
    Range,
    /// It brings samples from one type's range to another's.
    Rescales,
    /// It takes samples out of the range of their type.
    Leaves,
}

impl Scale {
    /// Whether two functions do about the same in either order.
    pub fn commutes(self, other: Self) -> bool {
        let pair = |a, b| (self, other) == (a, b) || (other, self) == (a, b);
        !(pair(Self::Constants, Self::Rescales)
            || pair(Self::Constants, Self::Leaves)
            || pair(Self::Range, Self::Leaves))
    }
}

/// What the optimiser may assume of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Version of the function's meaning: part of the semantic hash, raised when its output changes.
    pub version: u32,
    /// Whether it draws.
    pub purity: Purity,
    /// How pixels relate.
    pub algebra: Algebra,
    /// Whether the result has the height and width of the image.
    pub keeps_shape: bool,
    /// Whether each sample becomes `a x + b`, where `a` and `b` depend on the channel alone.
    pub affine: bool,
    /// Whether each pixel of a float image becomes a mean of pixels, with weights that depend on places and
    /// sum to one.
    pub averages: bool,
    /// How the scale of samples matters.
    pub scale: Scale,
    /// Whether a row can fail.
    pub fallible: bool,
}

impl FunctionFacts {
    /// Facts of a function whose result has the height and width of the image.
    pub(crate) const fn keeping_shape(self) -> Self {
        Self {
            keeps_shape: true,
            ..self
        }
    }

    /// Facts of a function that is affine in each sample.
    pub(crate) const fn affine(self) -> Self {
        Self {
            affine: true,
            ..self
        }
    }

    /// Facts of a function to which the scale of samples matters.
    pub(crate) const fn scaled(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// Facts of a function that averages pixels.
    pub(crate) const fn averaging(self) -> Self {
        Self {
            averages: true,
            ..self
        }
    }
}
