//! Conditions under which two adjacent operators may be swapped or merged, shared by several rules.

use datafusion::logical_expr::Expr;
use forebay_udfs::image::{Decoding, ImageCall};

use super::rule::{Site, Verdict};
use crate::optimizer::slots::Slot;
use crate::optimizer::spec::{OpKind, OpSpec};

/// The slot that two image functions rewrite in place: each reads its image from the slot, and
/// writes its result to the same slot. `None` if the operators are not two such functions of one
/// slot.
pub fn in_place(outer: &OpSpec, inner: &OpSpec) -> Option<Slot> {
    let rewrites = |spec: &OpSpec| -> Option<Slot> {
        match &spec.kind {
            OpKind::Row { slot, .. } if spec.reads.contains(*slot) => Some(*slot),
            _ => None,
        }
        .filter(|_| matches!(spec.first_argument(), Some(Expr::Column(_))))
    };
    let slot = rewrites(outer)?;
    (rewrites(inner) == Some(slot) && outer.reads == inner.reads).then_some(slot)
}

/// Refuses two operators if one of them is pinned, or calls a function that is not declared
/// deterministic.
pub(super) fn unpinned(outer: &OpSpec, inner: &OpSpec) -> Result<(), &'static str> {
    if outer.is_volatile() || inner.is_volatile() {
        return Err("one of them calls a function that is not declared deterministic");
    }
    if outer.pinned || inner.pinned {
        return Err("one of them is pinned");
    }
    Ok(())
}

/// Refuses two operators if one of them writes a slot that the other reads or writes.
pub(super) fn independent(outer: &OpSpec, inner: &OpSpec) -> Result<(), &'static str> {
    if !outer.reads.is_disjoint(&inner.writes) {
        return Err("the upper one reads what the lower one writes");
    }
    if !inner.reads.is_disjoint(&outer.writes) {
        return Err("the upper one writes what the lower one reads");
    }
    if !outer.writes.is_disjoint(&inner.writes) {
        return Err("both write the same slot");
    }
    Ok(())
}

/// Refuses two operators that can both raise an error on a row. A row reports only the error of the
/// operator that is applied first, so a swap would change the reported error.
pub(super) fn not_both_fallible(outer: &OpSpec, inner: &OpSpec) -> Result<(), &'static str> {
    if outer.fallible && inner.fallible {
        return Err("both may fail, and a row reports its first error");
    }
    Ok(())
}

/// Returns the two operators of `site` in swapped order if every condition holds, and otherwise the
/// first refusal.
pub(super) fn swapped(site: Site, conditions: &[Result<(), &'static str>]) -> Verdict {
    for condition in conditions {
        (*condition)?;
    }
    Ok(vec![site.outer, site.inner])
}

/// The image call of `outer`, and the way in which `inner` decodes the image of this call. `None`
/// if `inner` is not a decoder whose image `outer` reads.
pub(super) fn over_decoding(outer: &OpSpec, inner: &OpSpec) -> Option<(ImageCall, Decoding)> {
    match (&outer.kind, inner.image_call()) {
        (OpKind::Row { slot, .. }, Some(ImageCall::Decode(decoding)))
            if inner.writes.contains(*slot)
                && outer.reads == inner.writes
                && matches!(outer.first_argument(), Some(Expr::Column(_))) =>
        {
            Some((outer.image_call()?, decoding))
        }
        _ => None,
    }
}
