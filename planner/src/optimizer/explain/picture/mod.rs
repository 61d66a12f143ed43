//! Plans as pictures: trees of labelled boxes side by side, with differing boxes in colour.

mod dot;
mod panel;
mod svg;
#[cfg(test)]
mod tests;

pub use dot::dot;
pub use panel::{Labelled, Panel};
pub use svg::svg;
