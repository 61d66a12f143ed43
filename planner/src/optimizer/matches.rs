//! Pairs of nodes in the e-graph that rules may rewrite.

use egg::Id;

use super::ids::ParamId;
use super::rules::Site;

/// Two adjacent nodes that rules may rewrite: two operators, or an operator and a union.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Match {
    /// Two operators: `site.outer` directly above `site.inner`, which reads `input`.
    Pair { class: Id, site: Site, input: Id },
    /// The operator `param` directly above a union of `inputs`.
    OverCat {
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    },
    /// A union of two plans whose topmost operator is `param`. The two operators read `inputs[0]`
    /// and `inputs[1]`.
    CatOf {
        class: Id,
        param: ParamId,
        inputs: [Id; 2],
    },
}

impl Match {
    /// The class of the upper node, whose plan is rewritten.
    pub(super) fn class(self) -> Id {
        match self {
            Self::Pair { class, .. } | Self::OverCat { class, .. } | Self::CatOf { class, .. } => {
                class
            }
        }
    }
}
