//! The rewrite rules, one file per family.
//!
//! Nearly every rule looks at two adjacent operators, and returns operators that yield the same
//! rows over any input. A rule sees only the specs of the two operators. So a rule is one function
//! that can be tested without an e-graph, and whose verdict is computed once per pair.
//!
//! | family | rules |
//! |---|---|
//! | [`filter`] | filters past row functions, filters, lookups, unnest, shuffle |
//! | [`row`] | row functions past each other and past filters |
//! | [`order`] | row functions past shuffle, take and batch; takes |
//! | [`image`] | functions over the same image, by facts alone |
//! | [`geometry`] | crops, mirrorings and resizes, by their constants |
//! | [`affine`] | functions that are affine in each sample |
//! | [`decode`] | filters below decoding; operations that a decoder could do itself |
//!
//! `docs/rules.md` lists all rules.

pub mod affine;
mod catalogue;
pub mod concat;
mod conditions;
pub mod decode;
pub mod filter;
pub mod geometry;
pub mod image;
pub mod order;
mod refusals;
#[cfg(test)]
mod relational_tests;
pub mod row;
mod rule;
#[cfg(test)]
mod tests;

/// The greatest change of the stream that a rewrite may make.
pub use crate::clauses::Relax as Tier;
pub use catalogue::{is_disabled, rule_families, rules, tier_of};
pub use conditions::in_place;
pub use rule::{Rule, Site, Verdict};
