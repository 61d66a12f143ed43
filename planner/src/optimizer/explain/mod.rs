//! EXPLAIN of the optimiser: the derivation of the chosen plan, and the alternatives.
//!
//! An explanation is computed on request by repeating the search, with proofs.
//!
//! | module | contents |
//! |---|---|
//! | [`plan`] | a plan with the cost, the rows and the bytes of each operator |
//! | [`derivation`] | the steps from the written plan to the chosen one |
//! | [`cache_points`] | the cost of caching at each operator |
//! | [`why_not`] | the places where a rule matched but was refused |
//! | [`picture`] | plans as DOT and as SVG |

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
