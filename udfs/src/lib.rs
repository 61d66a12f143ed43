//! The functions of Forebay, with the properties that the optimiser may assume.

mod address_set;
mod args;
pub mod bind;
mod binding;
mod bounded;
pub mod buffer_pool;
mod catalogue;
mod constant;
mod declared;
pub mod decode_scope;
pub mod draw;
pub mod facts;
mod failure;
mod functions;
mod guarded;
pub mod hash;
pub mod huge_pages;
pub mod image;
mod info;
mod length;
mod one_hot;
mod pin;
mod random;
pub mod room;
pub mod row;
mod row_function;
pub mod seek_index_store;
pub mod simd;
pub mod tensor;
pub mod width;

pub use bind::bind_stream;
pub use bounded::{MAX_BATCH_BYTES, MAX_VALUE_BYTES, OversizedBatch};
pub use catalogue::{catalogue, facts_of, function_info, is_random};
pub use constant::{ConstantArrays, constant, constant_arrays};
pub use declared::{
    DeclaredFunction, FunctionFault, HostFunctions, UNKNOWN_NS_PER_ROW, calls_declared, declare,
    declared, declared_functions, is_volatile,
};
pub use failure::{CAUSE_BYTES, RowFailure, RowFunction, RunFailure, bounded};
pub use functions::functions;
pub use guarded::guarded_functions;
pub use image::{SplitChain, facts_of_call, fuse, is_written_out, split_widening, work_of_call};
pub use info::{ArgumentInfo, FunctionInfo};
pub use length::{has_length, length_function, length_of};
pub use pin::{PIN_MARKER, pinned, without_pins};
pub use row_function::row_function;
pub use tensor::{Dtype, ImageLayout, TensorType};
