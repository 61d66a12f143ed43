//! Places where rules matched but were refused.

use crate::optimizer::arena::Arena;
use crate::optimizer::rules::concat;
use crate::optimizer::saturate::Saturation;

/// A place where a rule matched but was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRewrite {
    /// The name of the rule.
    pub rule: &'static str,
    /// The upper operator, for display.
    pub above: String,
    /// The lower operator, for display.
    pub below: String,
    /// The condition that does not hold.
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
