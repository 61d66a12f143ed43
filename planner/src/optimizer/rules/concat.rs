//! Operators past a union of rows.

use crate::optimizer::spec::{OpKind, OpSpec};

/// An operator over a union becomes one over each of its inputs.
pub const DISTRIBUTE: &str = "union-distribute";
/// The same operator over each input of a union becomes one over the union.
pub const SHARE: &str = "union-share";

/// Whether an operator over a union is the same as one over each input, and the other way round: what
/// looks at one row at a time is.
/// Draws follow the row, whose key names its input.
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
