//! The documentation of a function, which is written beside the function's code.

use crate::facts::{Algebra, FunctionFacts, Purity, Scale};

/// An argument of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentInfo {
    /// The argument's name.
    pub name: &'static str,
    /// Meaning of the argument, with type, unit, range and default.
    pub doc: &'static str,
}

/// A function's documentation and facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Name of the function in SQL.
    pub name: &'static str,
    /// Heading under which the catalogue lists the function.
    pub category: &'static str,
    /// Form of a call; brackets enclose optional parts.
    pub signature: &'static str,
    /// Purpose of the function, in one sentence.
    pub summary: &'static str,
    /// Arguments of the function.
    pub arguments: &'static [ArgumentInfo],
    /// Description of the result.
    pub returns: &'static str,
    /// A query that calls the function.
    pub example: &'static str,
    /// Counterpart in torchvision v2 (or another library), and the differences in results.
    pub counterpart: &'static str,
    /// Properties of the function that the optimiser relies on.
    pub facts: FunctionFacts,
}

impl FunctionInfo {
    /// Returns the call in the example, with `decode_image(image)` replaced by the text `image`;
    /// `None` if the example decodes no image.
    pub fn example_over(&self, image: &str) -> Option<String> {
        const DECODED: &str = "decode_image(image)";
        let (_, query) = self.example.split_once("SELECT ")?;
        let (call, _) = query.split_once(" FROM ")?;
        let is_over_image = call.contains(DECODED) && call != DECODED;
        is_over_image.then(|| call.replace(DECODED, image))
    }
}

/// Headings of the catalogue, in the order of listing.
pub(crate) const CATEGORIES: [&str; 5] = [DECODING, GEOMETRY, COLOR, TENSORS, RANDOM_NUMBERS];

/// Functions over encoded images.
pub(crate) const DECODING: &str = "decoding";
/// Functions that move pixels, or mix pixels of different positions.
pub(crate) const GEOMETRY: &str = "geometry";
/// Functions that change colors.
pub(crate) const COLOR: &str = "color";
/// Functions that convert an image or a label to a tensor.
pub(crate) const TENSORS: &str = "tensors";
/// Functions that return random numbers.
pub(crate) const RANDOM_NUMBERS: &str = "random numbers";

/// The argument `image`, which most functions share.
pub(crate) const IMAGE: ArgumentInfo = arg("image", "A decoded image [H, W, C] of u8, f16 or f32.");

/// Describes an argument.
pub(crate) const fn arg(name: &'static str, doc: &'static str) -> ArgumentInfo {
    ArgumentInfo { name, doc }
}

/// Returns the facts of version 1 of a function. The facts that are not parameters have default
/// values, which methods of [`FunctionFacts`] override.
pub(crate) const fn facts(purity: Purity, algebra: Algebra, fallible: bool) -> FunctionFacts {
    FunctionFacts {
        version: 1,
        purity,
        algebra,
        // A pointwise function keeps the height and width of the image.
        keeps_shape: matches!(algebra, Algebra::Pointwise),
        affine: false,
        averages: false,
        scale: Scale::Free,
        fallible,
        priced_as: None,
    }
}
