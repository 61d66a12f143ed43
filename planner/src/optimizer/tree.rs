//! A plan as a tree of operators. Row plans are lowered to trees, operators are sorted in trees,
//! and a chosen tree is raised to a row plan.

use super::arena::Arena;
use super::ids::{ParamId, ScanId};
use super::lang::{Node, Term};
use super::slots::SlotSet;
use egg::Id;

/// A plan: its topmost operator, and the plans below this operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorTree {
    /// The rows of a source.
    Scan(ScanId),
    /// An operator over a plan.
    Op(ParamId, Box<Self>),
    /// All rows of one plan, followed by all rows of another.
    Cat(Box<[Self; 2]>),
    /// Rows of several plans, drawn by the weights in [`Arena::mix`].
    Mix(Vec<Self>),
    /// A plan whose rows are cached for later epochs.
    Cache(Box<Self>),
}

impl OperatorTree {
    /// Returns the plan in which the operator `param` is applied to the rows of this plan.
    #[must_use]
    pub fn then(self, param: ParamId) -> Self {
        Self::Op(param, Box::new(self))
    }

    /// Calls `f` on this plan and on every plan within it. `f` sees the inputs of an operator
    /// before the operator.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Self)) {
        match self {
            Self::Scan(_) => {}
            Self::Op(_, input) | Self::Cache(input) => input.visit(f),
            Self::Cat(inputs) => inputs.iter().for_each(|i| i.visit(f)),
            Self::Mix(arms) => arms.iter().for_each(|arm| arm.visit(f)),
        }
        f(self);
    }

    /// Returns a copy of the plan in which each operator `p` is replaced by `of(p)`.
    pub fn with_operators(&self, of: &mut impl FnMut(ParamId) -> ParamId) -> Self {
        if let Self::Mix(arms) = self {
            return Self::Mix(arms.iter().map(|arm| arm.with_operators(of)).collect());
        }
        let mut both = |inputs: &[Self; 2]| {
            let [a, b] = inputs;
            Box::new([a.with_operators(of), b.with_operators(of)])
        };
        match self {
            Self::Mix(_) => self.clone(),
            Self::Scan(scan) => Self::Scan(*scan),
            Self::Cat(inputs) => Self::Cat(both(inputs)),
            Self::Op(param, input) => input.with_operators(of).then(of(*param)),
            Self::Cache(input) => Self::Cache(Box::new(input.with_operators(of))),
        }
    }

    /// Returns a copy of the plan without the operators, members of combined operators, and scanned
    /// columns that do not contribute to the slots in `wanted`.
    pub fn needed(&self, arena: &mut Arena, wanted: &SlotSet) -> Self {
        match self {
            Self::Scan(scan) => {
                let mut narrow = arena.scan(*scan).clone();
                narrow.columns.retain(|&(_, slot)| wanted.contains(slot));
                Self::Scan(arena.add_scan(narrow))
            }
            Self::Op(param, input) => {
                let spec = arena.spec(*param);
                let unused = spec.writes.is_disjoint(wanted) && !spec.pinned;
                // A row operator whose slots are not needed is dropped. Its errors are lost, which
                // is allowed: an error in an unneeded column is never reported.
                if spec.kind.is_row() && unused {
                    return input.needed(arena, wanted);
                }
                let param = arena.narrowed(*param, wanted);
                let below = arena.spec(param).needed(wanted);
                input.needed(arena, &below).then(param)
            }
            Self::Cache(input) => Self::Cache(Box::new(input.needed(arena, wanted))),
            Self::Cat(inputs) => {
                let inputs = inputs.each_ref().map(|input| input.needed(arena, wanted));
                Self::Cat(Box::new(inputs))
            }
            Self::Mix(arms) => {
                let arms = arms.iter().map(|arm| arm.needed(arena, wanted));
                Self::Mix(arms.collect())
            }
        }
    }

    /// Converts the plan to a term that yields the slots in `wanted`, without the operators and
    /// scanned columns that these slots do not need.
    pub fn term(&self, arena: &mut Arena, wanted: &SlotSet) -> Term {
        let mut term = Term::default();
        let needed = self.needed(arena, wanted);
        needed.add(arena, wanted, &mut term);
        term
    }

    fn add(&self, arena: &mut Arena, wanted: &SlotSet, term: &mut Term) -> Id {
        match self {
            Self::Scan(scan) => term.add(Node::Scan(*scan)),
            Self::Op(param, input) => {
                let below = arena.spec(*param).needed(wanted);
                let input = input.add(arena, &below, term);
                let param = term.add(Node::Param(*param));
                let live = term.add(Node::LiveSlots(arena.intern_slots(wanted.clone())));
                term.add(Node::Op([param, live, input]))
            }
            Self::Cache(input) => input.add(arena, wanted, term),
            Self::Cat(inputs) => {
                let [a, b] = inputs
                    .each_ref()
                    .map(|input| input.add(arena, wanted, term));
                term.add(Node::Cat([a, b]))
            }
            Self::Mix(arms) => {
                let arms = arms.iter().map(|arm| arm.add(arena, wanted, term));
                let arms = arms.collect();
                term.add(Node::Mix(arms))
            }
        }
    }
}
