//! Image functions: codecs, kernels, the functions as DataFusion sees them, and fused programs.
//!
//! `parse` reads a call's constants into an `op`; `step` takes a row's draws; `kernel` changes
//! pixels; `run` does so for all rows of a batch. A function called alone is a program of one
//! operator, so fusing changes no byte.

mod call;
mod codec;
mod footprint;
mod function;
mod fuse;
mod header;
mod input;
mod kernel;
pub(crate) mod op;
mod output;
pub(crate) mod parse;
mod pixels;
mod program;
mod run;
mod scratch;
mod step;
mod work;

pub use call::{Axis, ImageCall, Rectangle, crop, decode_luma, facts_of_call, normalize, resize};
pub use codec::{MAX_DECODER_BYTES, MAX_PIXELS, panics_are_caught};
pub use function::ImageFunction;
pub use fuse::fuse;
pub use header::ImageHeader;
pub use op::{Filter, Mode};
pub use program::ImageProgram;
pub use work::{is_written_out, work_of_call};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
