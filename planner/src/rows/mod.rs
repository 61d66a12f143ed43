//! The row plan: the operations of a query on each row, between the logical plan and execution.
//!
//! A [`RowPlan`] is a tree of operators that keep row keys: scans at the leaves, row-wise operators
//! above. Columns are *slots*, named uniquely within a node, so expressions need no qualifiers.
//!
//! | module | contents |
//! |---|---|
//! | `plan`, `op`, `expr` | plans, operators and expressions |
//! | [`lower`] | lowering of an analysed `LogicalPlan`, which refuses operators without row keys |
//! | [`bind`] | assignment of streams to random function calls |
//! | [`canonical`] | the text behind the semantic hash |
//! | [`columns`] | the columns of a node by name |
//! | [`fingerprint`] | unambiguous texts of expressions and plans |
//! | [`membership`] | the part of a plan that decides which stored rows reach the output |
//! | [`mix`](mod@mix), `mix_place` | the weights of a MIX, and the places where it may stand |
//! | `fallible` | expressions that can fail for a row |
//! | [`finalize`](mod@finalize) | last rewrites of a chosen plan: projections merged, columns pruned, images fused |

pub mod bind;
pub mod canonical;
pub mod columns;
mod expr;
pub(crate) mod fallible;
pub mod finalize;
pub mod fingerprint;
pub mod lower;
pub mod membership;
pub mod mix;
mod mix_place;
#[cfg(test)]
mod mix_tests;
mod op;
mod plan;
#[cfg(test)]
mod tests;

pub use expr::{draws, human, reads, slot};
pub use op::{NamedExpr, RowOp};
pub use plan::RowPlan;
