//! Pairs of operators that a rule matched but refused to rewrite.

use crate::optimizer::arena::Arena;
use crate::optimizer::rules::concat;
use crate::optimizer::saturate::Saturation;

/// Two adjacent operators that a rule matched but refused to rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRewrite {
    /// The name of the rule.
    pub rule: &'static str,
    /// The upper operator's text, for display.
    pub above: String,
    /// The lower operator's text, or `union`, for display.
    pub below: String,
    /// The reason for the refusal.
    pub why: &'static str,
}

impl RefusedRewrite {
    pub(super) fn all(arena: &Arena, search: &Saturation) -> Vec<Self> {
        let pairs = search.refused.iter().flat_map(|(&rule, sites)| {
            sites.iter().map(move |(site, &why)| Self {
                rule,
                above: arena.spec(site.outer).shown(),
                below: arena.spec(site.inner).shown(),
                why,
            })
        });
        let over_unions = search.refused_over_union.iter();
        let over_unions = over_unions.map(|(&param, &why)| Self {
            rule: concat::DISTRIBUTE,
            above: arena.spec(param).shown(),
            below: "union".to_owned(),
            why,
        });
        pairs.chain(over_unions).collect()
    }
}
