//! MIX in the logical plan: an extension node that both SQL and the builder construct.
//!
//! | module | contents |
//! |---|---|
//! | `node` | the node, and its construction from inputs of the same columns |
//! | `types` | comparison of a column's types in different inputs |
//! | `check` | refusal of a MIX in the wrong place |

mod check;
mod node;
mod types;

pub(crate) use check::check;
pub(crate) use node::{MixInput, MixNode, mixed};
