//! The runtime of Forebay: sources, row keys, windows, segments, batches, the local engine.

pub mod fragment;
pub mod order;
pub mod snapshot;
pub mod source;
