//! Data for EXPLAIN: the derivation of the chosen plan, the costs of its cache points, and refused
//! rewrites.
//!
//! The optimiser records no proofs. An explanation is computed on request, by repeating the search
//! with proofs.
//!
//! | module | contents |
//! |---|---|
//! | [`plan`] | a plan with the cost, the number of rows and the bytes of each operator |
//! | [`derivation`] | the steps from the written plan to the chosen plan |
//! | [`cache_points`] | the cost of caching the rows of each operator |
//! | [`why_not`] | the pairs of operators that a rule matched but refused to rewrite |
//! | [`picture`] | drawings of plans in DOT and SVG |

pub mod cache_points;
pub mod derivation;
mod explained;
mod make;
pub mod picture;
pub mod plan;
mod refused;
mod rewrite;
mod sorting;
#[cfg(test)]
mod tests;
pub mod why_not;

pub use explained::{Explained, SearchEnd};
pub use make::explain;
#[cfg(test)]
pub(super) use make::told;
