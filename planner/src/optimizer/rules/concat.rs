//! Rules that move an operator past a union (`UNION ALL`).

use crate::optimizer::spec::{OpKind, OpSpec};

/// Name of the rule that applies an operator to each input of a union instead of to the union.
pub const DISTRIBUTE: &str = "union-distribute";
/// Name of the rule that applies an operator to a union instead of to each input of the union.
pub const SHARE: &str = "union-share";

/// Checks that an operator over a union is equivalent to the same operator over each input of the
/// union: the operator must process each row independently of other rows. A random operator may
/// move, since its draws depend only on the row's key, which does not change.
pub fn past_union(spec: &OpSpec) -> Result<(), &'static str> {
    if spec.pinned {
        return Err("it is pinned");
    }
    match spec.kind {
        OpKind::Row { .. } | OpKind::Rows(_) | OpKind::Filter { .. } | OpKind::Filters(_) => Ok(()),
        OpKind::Take { .. } | OpKind::Limit { .. } => {
            Err("the rows of both inputs together are counted, not those of each input")
        }
        OpKind::Shuffle { .. } => Err("the shuffle mixes the rows of both inputs"),
        OpKind::Batch { .. } => {
            Err("the rows of both inputs are batched together, not those of each input")
        }
        OpKind::Flatten { .. } | OpKind::Lookup { .. } => {
            Err("an unnest or a join is not split between the inputs of a union")
        }
    }
}
