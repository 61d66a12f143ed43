//! Moves operators past a union of rows.

use crate::optimizer::spec::{OpKind, OpSpec};

/// Name of the rule that replaces an operator over a union by one operator over each of the union's
/// inputs.
pub const DISTRIBUTE: &str = "union-distribute";
/// Name of the rule that replaces the same operator over each input of a union by one operator over
/// the union.
pub const SHARE: &str = "union-share";

/// Checks that an operator over a union is equivalent to the operator over each of the union's
/// inputs: it must process rows one at a time. Draws follow the row, whose key names its input.
pub fn past_union(spec: &OpSpec) -> Result<(), &'static str> {
    if spec.pinned {
        return Err("it is pinned");
    }
    match spec.kind {
        OpKind::Row { .. } | OpKind::Rows(_) | OpKind::Filter { .. } | OpKind::Filters(_) => Ok(()),
        OpKind::Take { .. } | OpKind::Limit { .. } => Err("each input would be cut by itself"),
        OpKind::Shuffle { .. } => Err("each input would be shuffled by itself"),
        OpKind::Batch { .. } => Err("each input would be batched by itself"),
        OpKind::Flatten { .. } | OpKind::Lookup { .. } => Err("it is kept whole"),
    }
}
