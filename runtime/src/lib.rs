//! The runtime of Forebay: sources, row keys, windows, segments, batches, the local engine.

pub mod fragment;
pub mod deal;
pub mod digest;
pub mod error;
pub mod fragment;
pub mod job;
pub mod engine;
pub mod limit;
pub mod order;
pub mod segment;
pub mod tail;
pub mod snapshot;
pub mod source;
