//! The rewrite rules, a file per family.
//!
//! Nearly every rule looks at two operators, one above the other, and says which operators give the
//! same rows over any input. It sees their specs, nothing else, so it is one function that can be tried
//! without an e-graph, and its verdict need be found once.
//!
//! | family | rules |
//! |---|---|
//! | [`filter`] | filters past row functions, filters, lookups, unnest, shuffle |
//! | [`row`] | row functions past each other and past filters |
//! | [`order`] | row functions past shuffle, take and batch; merging takes |
//! | [`image`] | functions over the same image, by facts alone |
//! | [`geometry`] | crops, mirrorings and resizes, by their constants |
//! | [`affine`] | functions that are affine in each sample |
//! | [`decode`] | filters below decoding; what a decoder could do itself |
//!
//! `docs/rules.md` lists them all.

pub mod affine;
pub mod concat;
pub mod decode;
pub mod filter;
pub mod geometry;
pub mod image;
pub mod order;
pub mod row;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use datafusion::logical_expr::Expr;
use forebay_udfs::TensorType;

pub use super::arena::{Arena, ParamId, TypeId};
use super::slots::Slot;
use super::spec::{OpKind, OpSpec};
/// How far a rewrite may change the stream.
pub use crate::clauses::Relax as Tier;
use crate::rows::tidy;

/// Two operators, one above the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The operator above.
    pub outer: ParamId,
    /// The operator below.
    pub inner: ParamId,
    /// Where both rewrite one slot, its type below them, if that is known.
    pub below: Option<TypeId>,
}

impl Site {
    /// A place of which no more is known than the operators.
    pub const fn of(outer: ParamId, inner: ParamId) -> Self {
        let below = None;
        Self {
            outer,
            inner,
            below,
        }
    }

    /// The image that both operators rewrite, as it is below them.
    fn image(&self, arena: &Arena) -> Option<TensorType> {
        arena.tensor(self.below?)
    }
}

/// Operators that give the same rows, the lowest first; or the condition that refuses.
pub type Verdict = Result<Vec<ParamId>, &'static str>;

/// A rewrite rule over two operators.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name, as in EXPLAIN and `disable_rules`.
    pub name: &'static str,
    /// How far it may change the stream.
    pub tier: Tier,
    /// Whether no plan is the worse for it: then it is applied before the search, which need not weigh it.
    pub always: bool,
    /// What the operators become; `None` where they are not of the rule's kinds.
    pub apply: fn(&mut Arena, Site) -> Option<Verdict>,
}

impl Rule {
    /// A rule that keeps bytes and order.
    const fn exact(name: &'static str, apply: fn(&mut Arena, Site) -> Option<Verdict>) -> Self {
        Self {
            name,
            tier: Tier::Exact,
            always: false,
            apply,
        }
    }

    /// The rule in this tier.
    const fn at(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }

    /// The rule as one that always pays.
    const fn always(self) -> Self {
        Self {
            always: true,
            ..self
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.tier)
    }
}

const FAMILIES: [(&str, &[Rule]); 7] = [
    ("filter", filter::RULES),
    ("row", row::RULES),
    ("order", order::RULES),
    ("image", image::RULES),
    ("geometry", geometry::RULES),
    ("affine", affine::RULES),
    ("decode", decode::RULES),
];

/// Rules that are not over two operators: those over unions, and those that tidy a chosen plan.
const OTHERS: [(&str, &str); 4] = [
    (concat::DISTRIBUTE, "concat"),
    (concat::SHARE, "concat"),
    (tidy::FILTER_INTO_SCAN, "filter"),
    (tidy::FUSE_IMAGES, "image"),
];

/// The rules over two operators.
pub fn rules() -> Vec<Rule> {
    FAMILIES.map(|(_, rules)| rules).concat()
}

/// The names of all rules, each with its family's.
pub fn rule_families() -> Vec<(&'static str, &'static str)> {
    let pairs = FAMILIES
        .iter()
        .flat_map(|&(family, rules)| rules.iter().map(move |rule| (rule.name, family)));
    pairs.chain(OTHERS).collect()
}

/// Whether a rule is among those that are left out, by its name or its family's.
pub fn is_disabled(disabled: &BTreeSet<String>, rule: &str) -> bool {
    let of_rule = |&(name, _): &(&str, &str)| name == rule;
    let family = rule_families().into_iter().find(of_rule);
    disabled.contains(rule) || family.is_some_and(|(_, family)| disabled.contains(family))
}

/// The slot that two functions rewrite in place: its value is the first argument of both, as it is.
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

/// Refuses to move an operator that the user pinned, or that is volatile.
fn unpinned(outer: &OpSpec, inner: &OpSpec) -> Result<(), &'static str> {
    if outer.is_volatile() || inner.is_volatile() {
        return Err("one of them calls a function that is not declared deterministic");
    }
    match outer.pinned || inner.pinned {
        true => Err("one of them is pinned"),
        false => Ok(()),
    }
}

/// Refuses two operators of which one reads or writes what the other writes.
fn independent(outer: &OpSpec, inner: &OpSpec) -> Result<(), &'static str> {
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

/// Refuses two operators over the same slot, or two filters, that both may fail: of a row that fails in
/// both, the first is reported.
fn not_both_fallible(outer: &OpSpec, inner: &OpSpec) -> Result<(), &'static str> {
    match outer.fallible && inner.fallible {
        true => Err("both may fail, and a row reports its first error"),
        false => Ok(()),
    }
}

/// The two operators the other way round, if every condition holds.
fn swapped(site: Site, conditions: &[Result<(), &'static str>]) -> Verdict {
    for condition in conditions {
        (*condition)?;
    }
    Ok(vec![site.outer, site.inner])
}
