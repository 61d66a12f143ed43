//! Properties of functions that the optimiser relies on.

/// The dependence of a function's value on random draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purity {
    /// The value depends only on the arguments.
    Pure,
    /// The value depends on the arguments, and on the draws of the call's stream for the row.
    Random,
}

/// Relation of a function's output to the pixels of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algebra {
    /// Not an image function, or an image function that reads more than pixels.
    Opaque,
    /// Decodes bytes to pixels.
    Decode,
    /// Each output pixel depends only on the input pixel at the same position.
    Pointwise,
    /// Each output pixel is a copy of an input pixel, whose position does not depend on pixel
    /// values.
    Select,
    /// Mixes pixels of different positions, or adds pixels that are not in the input.
    Spatial,
    /// Each output pixel may depend on every input pixel.
    Global,
    /// Keeps values, but changes the memory layout or the element type of the image.
    Layout,
}

/// The dependence of an image function's result on the numeric scale of the samples (0 to 255, or 0
/// to 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The result does not depend on the scale.
    Free,
    /// The function has constants on the scale of the samples, such as a threshold or a fill.
    Constants,
    /// The function assumes that samples lie in the range of the element type: 0 to 255 for bytes,
    /// 0 to 1 for floats.
    Range,
    /// The function converts samples from the range of one element type to the range of another.
    Rescales,
    /// The function moves samples out of the range of the element type, as `normalize` does.
    Leaves,
}

impl Scale {
    /// True if two functions with the scales `self` and `other` have about the same result in both
    /// orders.
    pub fn commutes(self, other: Self) -> bool {
        let pair = |a, b| (self, other) == (a, b) || (other, self) == (a, b);
        !(pair(Self::Constants, Self::Rescales)
            || pair(Self::Constants, Self::Leaves)
            || pair(Self::Range, Self::Leaves))
    }
}

/// The properties of a function that the optimiser relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Version of the function's meaning, raised when the output changes. The version is part of
    /// the semantic hash.
    pub version: u32,
    /// The dependence of the value on random draws.
    pub purity: Purity,
    /// Relation of the pixels of the output to the pixels of the input.
    pub algebra: Algebra,
    /// True if the result has the height and width of the input image.
    pub keeps_shape: bool,
    /// True if each sample becomes `a x + b`, where `a` and `b` depend only on the channel.
    pub affine: bool,
    /// True if each pixel of the result of a float image is a mean of input pixels, with weights
    /// that depend only on positions and sum to one.
    pub averages: bool,
    /// Dependence of the result on the scale of the samples.
    pub scale: Scale,
    /// True if the function can fail for a row.
    pub fallible: bool,
    /// Name of a function that costs about as much as this function. The price of that function
    /// applies on machines where this function has not been measured.
    pub priced_as: Option<&'static str>,
}

impl FunctionFacts {
    /// Sets `keeps_shape`, for a function whose result has the height and width of the input image.
    pub(crate) const fn keeping_shape(self) -> Self {
        Self {
            keeps_shape: true,
            ..self
        }
    }

    /// Sets `affine`, for a function that maps each sample `x` to `a x + b`.
    pub(crate) const fn affine(self) -> Self {
        Self {
            affine: true,
            ..self
        }
    }

    /// Sets `scale`, for a function whose result depends on the scale of the samples.
    pub(crate) const fn scaled(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// Sets `algebra` to [`Algebra::Select`], for a function whose output pixels are copies of
    /// input pixels.
    pub(crate) const fn selecting(self) -> Self {
        Self {
            algebra: Algebra::Select,
            ..self
        }
    }

    /// Sets `priced_as`, for a function that costs about as much as `function`. The price of
    /// `function` applies until `forebay calibrate` measures the new function itself.
    pub(crate) const fn priced_as(self, function: &'static str) -> Self {
        Self {
            priced_as: Some(function),
            ..self
        }
    }

    /// Sets `averages`, for a function whose output pixels are means of input pixels.
    pub(crate) const fn averaging(self) -> Self {
        Self {
            averages: true,
            ..self
        }
    }
}
