//! Rules over two operators.

use std::fmt;

use forebay_udfs::TensorType;

use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::ids::{ParamId, TypeId};

/// Two adjacent operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The upper operator.
    pub outer: ParamId,
    /// The lower operator.
    pub inner: ParamId,
    /// If both operators rewrite the same slot, the type of this slot below them, if known.
    pub below: Option<TypeId>,
}

impl Site {
    /// A site whose type below is not known.
    pub const fn of(outer: ParamId, inner: ParamId) -> Self {
        let below = None;
        Self {
            outer,
            inner,
            below,
        }
    }

    /// The image that both operators rewrite, as it is below them; `None` if its type is not known
    /// or no image.
    pub(super) fn image(&self, arena: &Arena) -> Option<TensorType> {
        arena.tensor(self.below?)
    }
}

/// The outcome of a rule: operators that yield the same rows as the matched two, lowest first, or
/// the condition that refuses the rewrite.
pub type Verdict = Result<Vec<ParamId>, &'static str>;

/// A rewrite rule over two operators.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name, as in EXPLAIN and `disable_rules`.
    pub name: &'static str,
    /// The tier of the rule.
    pub tier: Tier,
    /// True if the rule never makes a plan worse. Such a rule is applied before the search, since
    /// no costs need to be compared.
    pub always: bool,
    /// Rewrites the operators; `None` if the rule does not match them.
    pub apply: fn(&mut Arena, Site) -> Option<Verdict>,
}

impl Rule {
    /// Creates a rule that keeps bytes and order.
    pub(super) const fn exact(
        name: &'static str,
        apply: fn(&mut Arena, Site) -> Option<Verdict>,
    ) -> Self {
        Self {
            name,
            tier: Tier::Exact,
            always: false,
            apply,
        }
    }

    /// Moves the rule to a tier.
    pub(super) const fn at(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }

    /// Marks the rule as one that never makes a plan worse.
    pub(super) const fn always(self) -> Self {
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
