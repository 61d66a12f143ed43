//! The rewrite rules, one file per family.
//!
//! Nearly every rule matches two adjacent operators, and returns operators that yield the same rows
//! over any input. Such a rule is a function of the specs of the two operators, and of the type of
//! the image that both rewrite. So the rule can be tested without an e-graph, and its verdict is
//! computed only once for each pair of operators.
//!
//! | family | rules |
//! |---|---|
//! | [`filter`] | move filters below row functions, filters, lookups and unnest |
//! | [`row`] | move row functions past each other, and past filters and lookups |
//! | [`order`] | move shuffles below row functions and filters, and swap takes and row functions |
//! | [`image`] | swap or drop functions of the same image, by the facts about the functions |
//! | [`geometry`] | merge or swap crops, flips and resizes, by their constant arguments |
//! | [`affine`] | merge or swap functions that map each sample `x` to `a x + b` |
//! | [`decode`] | move filters below decoding, and let the decoder do other operations |
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

/// The greatest change of the stream that a rule may make, as in `relax = '..'`.
pub use crate::clauses::Relax as Tier;
pub use catalogue::{is_disabled, rule_families, rules, tier_of};
pub use conditions::in_place;
pub use rule::{Rule, Site, Verdict};
