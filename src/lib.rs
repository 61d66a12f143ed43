//! Forebay.

pub mod generate;
pub mod preview;
