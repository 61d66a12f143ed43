//! Image functions: codecs, kernels, the functions as DataFusion sees them, and fused programs.
//!
//! Each function is described in one file of `functions`. The description parses a call's constants
//! into an `op`, which takes a row's draws and calls a `kernel` on the row's pixels; `run` applies
//! the op to all rows of a batch. A function called alone is a program of one function, so fusing
//! changes no byte.

mod call;
mod codec;
mod definition;
mod footprint;
mod functions;
mod fuse;
mod header;
mod input;
mod kernel;
mod op;
mod output;
mod pixels;
mod program;
mod rewrite;
mod run;
mod scratch;
mod split;
mod stage;
mod streaming;
mod udf;
mod values;
mod variable;

pub use call::{Axis, ImageCall, Rectangle};
pub use codec::{MAX_DECODER_BYTES, panics_are_caught};
pub use fuse::fuse;
pub use header::ImageHeader;
pub use pixels::MAX_PIXELS;
pub use program::ImageProgram;
pub use rewrite::{
    calls_decode_regions, crop, decode_luma, decodes_regions, facts_of_call, is_written_out,
    normalize, resize, work_of_call,
};
pub use split::{SplitChain, split_widening};
pub use values::{Decoding, Interpolation, Mode};

pub(crate) use functions::IMAGE_FUNCTIONS;
pub(crate) use udf::ImageUdf;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
