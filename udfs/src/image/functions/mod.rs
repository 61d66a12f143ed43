//! The image functions, one function or family of functions per file.
//!
//! A file contains everything about a function: documentation and facts, parsing of the arguments,
//! the type of the result, the texts of `EXPLAIN` and of plan hashes, the draws, and the call of
//! the kernel. A new function needs one more file, and a line in [`IMAGE_FUNCTIONS`].

mod arguments;
mod center_crop;
mod color_jitter;
mod crop;
mod decode_image;
mod flip;
mod gaussian_blur;
mod grayscale;
mod normalize;
mod pad;
mod posterize;
mod random_affine;
mod random_crop;
mod random_erasing;
mod random_perspective;
mod random_resized_crop;
mod resize;
mod resize_shortest;
mod rotate;
mod solarize;
mod to_chw;
mod to_float;

use super::op::ImageFunction;

/// Every function that returns an image, in the order of the catalogue.
#[rustfmt::skip]
pub(crate) static IMAGE_FUNCTIONS: &[&ImageFunction] = &[
    &decode_image::FUNCTION,
    // Geometry.
    &resize::FUNCTION,
    &resize_shortest::FUNCTION,
    &center_crop::FUNCTION,
    &crop::FUNCTION,
    &pad::FUNCTION,
    &random_crop::FUNCTION,
    &random_resized_crop::FUNCTION,
    &flip::HFLIP,
    &flip::VFLIP,
    &flip::RANDOM_HFLIP,
    &flip::RANDOM_VFLIP,
    &rotate::ROTATE,
    &rotate::RANDOM_ROTATE,
    &random_affine::FUNCTION,
    &random_perspective::FUNCTION,
    &gaussian_blur::FUNCTION,
    &random_erasing::FUNCTION,
    // Color.
    &color_jitter::FUNCTION,
    &grayscale::GRAYSCALE,
    &grayscale::RANDOM_GRAYSCALE,
    &solarize::FUNCTION,
    &posterize::FUNCTION,
    // Tensors.
    &to_float::FUNCTION,
    &normalize::FUNCTION,
    &to_chw::FUNCTION,
];

#[cfg(test)]
mod tests;
