//! The runtime of Forebay: sources, row keys, windows, segments, batches, the local engine.

pub mod source;
pub mod stage;
