//! The language of the e-graph: a plan as a term.
//!
//! Every operator over one input is the same node, `(op p k x)`: `p` refers to the operator in the
//! arena, and `k` to the slots that operators above still need. So a rule over two operators is one
//! function of two specs, a new function needs no new rule, and no projection separates two
//! operators.
//!
//! | node | meaning |
//! |---|---|
//! | `Param` | a leaf that names an operator |
//! | `LiveSlots` | a leaf that names slots |
//! | `Scan` | the rows of a source |
//! | `Op` | an operator over a plan |
//! | `Cat` | all rows of one plan, followed by all rows of another |
//! | `Mix` | rows of several plans, drawn by weight; no rule looks past it |

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
