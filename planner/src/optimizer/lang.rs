//! The language of the e-graph: a plan as a term.
//!
//! Every operator over one input is a node of the same kind, `(op p k x)`: `p` refers to the
//! operator's spec in the arena, `k` to the set of slots that the operators above still need, and
//! `x` is the input. So a rule over two operators is one function of two specs, a new SQL function
//! needs no new rule, and no projection separates two operators.
//!
//! | node | meaning |
//! |---|---|
//! | `Param` | a leaf that names an operator |
//! | `LiveSlots` | a leaf that names a set of slots |
//! | `Scan` | a leaf: the rows of a source |
//! | `Op` | an operator, the slots that it passes on, and its input |
//! | `Cat` | all rows of one plan, followed by all rows of another |
//! | `Mix` | rows of several plans, drawn by weight; no rule moves an operator past a mix |

use egg::{Id, define_language};

use super::ids::{LiveSlotsId, ParamId, ScanId};

define_language! {
    /// A node of a plan.
    pub enum Node {
        Param(ParamId),
        LiveSlots(LiveSlotsId),
        Scan(ScanId),
        "op" = Op([Id; 3]),
        "cat" = Cat([Id; 2]),
        "mix" = Mix(Box<[Id]>),
    }
}

/// A plan as a term.
pub(crate) type Term = egg::RecExpr<Node>;
