//! The functions of Forebay, each with what the optimiser may assume of it.

mod args;
pub mod bind;
mod constant;
pub mod draw;
pub mod facts;
mod failure;
mod functions;
pub mod hash;
pub mod image;
mod one_hot;
mod random;
pub mod row;
pub mod simd;
pub mod tensor;

pub use bind::{bind_stream, is_random};
pub use constant::{ConstantArrays, constant, constant_arrays};
pub use failure::{RowFailure, RowFunction, row_function};
pub use functions::functions;
pub use image::fuse;
pub use tensor::{Dtype, Layout, TensorType};

/// TEMP until the catalogue lands.
pub fn facts_of(_: &str) -> Option<&'static facts::FunctionFacts> {
    None
}
