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

/// Declared cost on one core of the machine named in `benches/README.md`; a profile replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds a row, whatever its size.
    pub ns_per_row: u64,
    /// Picoseconds a byte read.
    pub ps_per_byte_in: u64,
    /// Picoseconds a byte written.
    pub ps_per_byte_out: u64,
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
    /// Whether a row can fail.
    pub fallible: bool,
    /// Declared cost.
    pub cost: Cost,
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

    /// Facts of a function that averages pixels.
    pub(crate) const fn averaging(self) -> Self {
        Self {
            averages: true,
            ..self
        }
    }
}
