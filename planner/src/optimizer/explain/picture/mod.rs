//! Drawings of plans: trees of labelled boxes side by side. Boxes that differ between the trees are
//! coloured.

mod dot;
mod panel;
mod svg;
#[cfg(test)]
mod tests;

pub use dot::dot;
pub use panel::{Labelled, Panel};
pub use svg::svg;
