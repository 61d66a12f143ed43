//! The row plan: a query as operators on rows. DataFusion's logical plan is lowered to a row plan,
//! which is then optimised and executed.
//!
//! A [`RowPlan`] is a tree of operators. Scans are the leaves and give each row a key, which the
//! operators above keep. A column, called *slot*, has a unique name among the columns of its
//! operator, so expressions need no table qualifiers.
//!
//! | module | contents |
//! |---|---|
//! | `plan`, `op`, `expr` | plans, operators and expressions |
//! | [`lower`] | lowering of an analysed `LogicalPlan`; refuses operators whose output rows have no keys |
//! | [`bind`] | assignment of random streams to random function calls |
//! | [`canonical`] | the text from which the semantic hash is computed |
//! | [`cut`](mod@cut) | the last steps of a plan, which the client of a cluster may compute |
//! | [`columns`] | an index of an operator's columns by name |
//! | [`fingerprint`] | unambiguous texts of expressions and plans |
//! | [`membership`] | the part of a plan that decides which stored rows reach the output |
//! | [`mix`](mod@mix), `mix_place` | the weights of a MIX, and the check of its position in a plan |
//! | `fallible` | expressions that can raise an error on a row |
//! | [`finalize`](mod@finalize) | last rewrites of a chosen plan: projections merged, columns pruned, images fused |

pub mod bind;
pub mod canonical;
pub mod columns;
pub mod cut;
mod expr;
pub(crate) mod fallible;
pub mod finalize;
pub mod fingerprint;
pub mod lower;
pub mod membership;
pub mod mix;
pub(crate) mod mix_place;
#[cfg(test)]
mod mix_tests;
mod op;
mod plan;
#[cfg(test)]
mod tests;

pub use expr::{draws, human, reads, slot};
pub use op::{NamedExpr, RowOp};
pub use plan::RowPlan;
