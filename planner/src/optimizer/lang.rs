//! The language of the e-graph: a plan as a term.
//!
//! Every operator over one input is the same node, `(op p k x)`: what `p` stands for is in the arena, and
//! `k` are the slots that something above still needs. So a rule over two operators is one function of two
//! specs, a new function needs no new rule, and no projection stands between two operators.
//!
//! | node | what it is |
//! |---|---|
//! | `Param` | a leaf that names an operator |
//! | `Keep` | a leaf that names slots |
//! | `Scan` | the rows of a source |
//! | `Op` | an operator over a plan |
//! | `Cat` | all rows of one plan, then all of another |
//! | `Zip` | the rows of two plans side by side |
//! | `Mix` | rows of several plans, drawn by weight; no rule looks past it |

use egg::{Id, define_language};

use super::arena::{KeepId, ParamId, ScanId};

define_language! {
    /// A node of a plan.
    #[expect(missing_docs, reason = "the macro takes no docs of variants; the module has them")]
    pub enum Node {
        Param(ParamId),
        Keep(KeepId),
        Scan(ScanId),
        "op" = Op([Id; 3]),
        "cat" = Cat([Id; 2]),
        "zip" = Zip([Id; 2]),
        "mix" = Mix(Box<[Id]>),
    }
}

/// A plan as a term.
pub type Term = egg::RecExpr<Node>;
