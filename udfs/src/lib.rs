//! The functions of Forebay, each with what the optimiser may assume of it.

mod args;
pub mod bind;
mod bounded;
mod catalogue;
mod constant;
mod declared;
pub mod draw;
pub mod facts;
mod failure;
mod functions;
mod guarded;
pub mod hash;
pub mod image;
mod length;
mod lent;
mod one_hot;
mod pin;
mod random;
pub mod recycle;
pub mod room;
pub mod row;
pub mod simd;
pub mod tensor;
pub mod width;

pub use bind::{bind_stream, is_random};
pub use bounded::{MAX_BATCH_BYTES, MAX_VALUE_BYTES, OversizedBatch};
pub use catalogue::{ArgumentInfo, FunctionInfo, catalogue, facts_of, function_info};
pub use constant::{ConstantArrays, constant, constant_arrays};
pub use declared::{
    DeclaredFunction, UNKNOWN_NS_PER_ROW, calls_declared, declare, declared, declared_names,
    is_volatile,
};
pub use failure::{CAUSE_BYTES, RowFailure, RowFunction, RunFailure, bounded, row_function};
pub use functions::functions;
pub use guarded::guarded_functions;
pub use image::{facts_of_call, fuse, is_written_out, work_of_call};
pub use length::{has_length, length_of};
pub use pin::{PIN_MARKER, pinned, without_pins};
pub use tensor::{Dtype, Layout, TensorType};
