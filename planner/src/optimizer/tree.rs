//! A plan as a tree of operators, before it is a term: what is lowered, sorted, and raised.

use super::arena::{Arena, ParamId, ScanId};
use super::lang::{Node, Term};
use super::slots::SlotSet;
use egg::Id;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// The rows of a source.
    Scan(ScanId),
    /// An operator over a plan.
    Op(ParamId, Box<Self>),
    /// All rows of one plan, then all of another.
    Cat(Box<[Self; 2]>),
    /// The rows of two plans side by side, and which slots the second one gives.
    Zip(Box<[Self; 2]>, SlotSet),
    /// Rows of several plans, drawn by the weights of the arena's mix.
    Mix(Vec<Self>),
    /// A plan whose rows are kept from epoch to epoch.
    Cache(Box<Self>),
}

impl Tree {
    /// An operator over this plan.
    #[must_use]
    pub fn then(self, param: ParamId) -> Self {
        Self::Op(param, Box::new(self))
    }

    /// Calls `f` on every part of the plan, inputs first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Self)) {
        match self {
            Self::Scan(_) => {}
            Self::Op(_, input) | Self::Cache(input) => input.visit(f),
            Self::Cat(inputs) | Self::Zip(inputs, _) => inputs.iter().for_each(|i| i.visit(f)),
            Self::Mix(arms) => arms.iter().for_each(|arm| arm.visit(f)),
        }
        f(self);
    }

    /// The plan with other operators in the places of its own.
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
            Self::Zip(inputs, second) => Self::Zip(both(inputs), second.clone()),
            Self::Op(param, input) => input.with_operators(of).then(of(*param)),
            Self::Cache(input) => Self::Cache(Box::new(input.with_operators(of))),
        }
    }

    /// The plan without what nobody needs to have `wanted`.
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
                // An error of a slot that nobody needs does not surface.
                if spec.kind.is_row() && unused {
                    return input.needed(arena, wanted);
                }
                let param = arena.narrowed(*param, wanted);
                let below = arena.needed(param, wanted);
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
            Self::Zip(inputs, second) => {
                let a = inputs[0].needed(arena, &wanted.difference(second));
                let b = inputs[1].needed(arena, &wanted.intersection(second));
                Self::Zip(Box::new([a, b]), second.clone())
            }
        }
    }

    /// The plan as a term that passes on `wanted` and, below that, what is needed for it: nothing else
    /// is read or computed.
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
                let below = arena.needed(*param, wanted);
                let input = input.add(arena, &below, term);
                let param = term.add(Node::Param(*param));
                let keep = term.add(Node::Keep(arena.keep(wanted.clone())));
                term.add(Node::Op([param, keep, input]))
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
            Self::Zip(inputs, second) => {
                let a = inputs[0].add(arena, &wanted.difference(second), term);
                let b = inputs[1].add(arena, &wanted.intersection(second), term);
                term.add(Node::Zip([a, b]))
            }
        }
    }
}
