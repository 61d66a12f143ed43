//! Places in the e-graph that rules may rewrite.

use egg::Id;

use super::ids::ParamId;
use super::rules::Site;

/// A place in a plan where rules may apply: two adjacent operators, or an operator next to a union.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Match {
    /// The operators of `site`, one directly above the other, over `input`.
    Pair { class: Id, site: Site, input: Id },
    /// The operator `param` over a union of `inputs`.
    OverCat {
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    },
    /// A union whose inputs both have the operator `param` on top, over `inputs`.
    CatOf {
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    },
}

impl Match {
    /// The class whose plan is rewritten.
    pub(super) fn class(self) -> Id {
        match self {
            Self::Pair { class, .. } | Self::OverCat { class, .. } | Self::CatOf { class, .. } => {
                class
            }
        }
    }
}
