//! The type of rules over two adjacent operators.

use std::fmt;

use forebay_udfs::TensorType;

use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::ids::{ParamId, TypeId};

/// Two adjacent operators of a plan, which a rule may rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The upper operator.
    pub outer: ParamId,
    /// The lower operator.
    pub inner: ParamId,
    /// If both operators rewrite the same slot, the type of this slot below both operators. `None`
    /// if the operators do not, or if the type is unknown.
    pub below: Option<TypeId>,
}

impl Site {
    /// Creates a site without the type of a slot below the operators.
    pub const fn of(outer: ParamId, inner: ParamId) -> Self {
        let below = None;
        Self {
            outer,
            inner,
            below,
        }
    }

    /// The type, below both operators, of the image that both operators rewrite; `None` if the type
    /// is unknown, or is not an image.
    pub(super) fn image(&self, arena: &Arena) -> Option<TensorType> {
        arena.tensor(self.below?)
    }
}

/// The outcome of a rule: the operators that replace the matched two, lowest first, or the reason
/// why the rule refuses to rewrite the matched two.
pub type Verdict = Result<Vec<ParamId>, &'static str>;

/// A rewrite rule over two operators.
#[derive(Clone, Copy)]
pub struct Rule {
    /// The rule's name in EXPLAIN and in `disable_rules`.
    pub name: &'static str,
    /// The greatest change of the stream that the rule may make.
    pub tier: Tier,
    /// True if the rule never makes a plan more expensive. Such a rule is applied before the
    /// search.
    pub always: bool,
    /// Returns the rule's outcome for the operators of a site; `None` if the rule does not match
    /// these operators.
    pub apply: fn(&mut Arena, Site) -> Option<Verdict>,
}

impl Rule {
    /// Creates a rule that changes neither the bytes nor the order of rows.
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

    /// Returns the rule with the tier `tier`.
    pub(super) const fn at(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }

    /// Marks the rule as one that never makes a plan more expensive.
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
