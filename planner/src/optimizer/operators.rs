//! Constructors of operators: from expressions, and from other operators.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;
use forebay_udfs::facts::Algebra;

use super::arena::Arena;
use super::coefficients::{FunctionCost, OpCost};
use super::ids::ParamId;
use super::slots::{Slot, SlotSet};
use super::spec::{OpKind, OpSpec, algebra, cost_of};
use crate::rows::fallible::fallible;
use crate::rows::{draws, human};

impl Arena {
    /// Interns the operator that computes `slot` by `expr`. `fallible` is true if `expr` may raise
    /// an error on a row.
    pub fn row(&mut self, slot: Slot, expr: Expr, fallible: bool) -> ParamId {
        let spec = OpSpec {
            text: format!("{} = {}", self.name(slot), human(&expr)),
            reads: self.reads(&expr),
            writes: SlotSet::from_iter([slot]),
            draws: draws(&expr),
            fallible,
            pinned: forebay_udfs::is_volatile(&expr),
            algebra: algebra(&expr),
            cost: cost_of(&expr, &self.prices),
            percent: 100,
            kind: OpKind::Row {
                slot,
                expr: Box::new(expr),
            },
        };
        self.intern(spec)
    }

    /// Interns the operator that keeps the rows for which `predicate` is true. `fallible` is true
    /// if `predicate` may raise an error on a row.
    pub fn filter(&mut self, predicate: Expr, fallible: bool) -> ParamId {
        let spec = OpSpec {
            text: human(&predicate),
            reads: self.reads(&predicate),
            writes: SlotSet::default(),
            draws: draws(&predicate),
            fallible,
            pinned: forebay_udfs::is_volatile(&predicate),
            algebra: algebra(&predicate),
            cost: cost_of(&predicate, &self.prices),
            percent: 100,
            kind: OpKind::Filter {
                predicate: Box::new(predicate),
            },
        };
        self.intern(spec)
    }

    /// Interns the operator that computes `expr`, an image call, in the slot that `param` computes.
    /// `None` if `param` is not a row operator.
    pub fn over(&mut self, param: ParamId, expr: Expr) -> Option<ParamId> {
        let OpKind::Row { slot, .. } = self.spec(param).kind else {
            return None;
        };
        let fallible = fallible(&expr, &DFSchema::empty());
        Some(self.row(slot, expr, fallible))
    }

    /// Combines several row operators, or several filters, into one operator. A row operator in
    /// `members` must not read or write a slot that another member writes. If `members` has one
    /// operator, that operator is returned, and if `members` is empty, `None`.
    pub fn together(&mut self, members: Vec<ParamId>) -> Option<ParamId> {
        let [first, .., last] = members[..] else {
            return members.first().copied();
        };
        let specs: Vec<Arc<OpSpec>> = members.iter().map(|&m| Arc::clone(self.spec(m))).collect();
        let (mut reads, mut writes) = (SlotSet::default(), SlotSet::default());
        for spec in &specs {
            reads.extend(&spec.reads);
            writes.extend(&spec.writes);
        }
        let (count, is_row) = (specs.len(), specs[0].kind.is_row());
        let what = if is_row { "columns" } else { "conditions" };
        let (first, last) = (&self.spec(first).text, &self.spec(last).text);
        let spec = OpSpec {
            text: format!("{count} {what}: {first} .. {last}"),
            reads,
            writes,
            draws: specs.iter().any(|spec| spec.draws),
            fallible: specs.iter().any(|spec| spec.fallible),
            pinned: specs.iter().any(|spec| spec.pinned),
            algebra: Algebra::Opaque,
            // A combined operator is priced as the sum of its members, so it has no cost besides.
            cost: FunctionCost::default(),
            percent: 100,
            kind: if is_row {
                OpKind::Rows(members)
            } else {
                OpKind::Filters(members)
            },
        };
        Some(self.intern(spec))
    }

    /// Returns the combined row operator `param` without the members whose slots are not in
    /// `wanted`. Any other operator is returned unchanged.
    pub fn narrowed(&mut self, param: ParamId, wanted: &SlotSet) -> ParamId {
        let spec = Arc::clone(self.spec(param));
        let OpKind::Rows(members) = &spec.kind else {
            return param;
        };
        let used = |&&member: &&ParamId| {
            let spec = self.spec(member);
            spec.pinned || !spec.writes.is_disjoint(wanted)
        };
        let used: Vec<ParamId> = members.iter().filter(used).copied().collect();
        self.together(used).unwrap_or(param)
    }

    /// Returns a copy of the operator `param` that no rule may move.
    pub fn pin(&mut self, param: ParamId) -> ParamId {
        let mut spec = self.spec(param).as_ref().clone();
        spec.text = match &spec.kind {
            OpKind::Row { slot, expr } => {
                format!("{} = PINNED {}", self.name(*slot), human(expr))
            }
            _ => format!("PINNED ({})", spec.text),
        };
        spec.pinned = true;
        self.intern(spec)
    }

    /// Interns the operator that drops the first `skip` rows of each epoch and keeps the next
    /// `take` rows. `shuffled` is true if the epochs are shuffled, so that each may keep other
    /// rows.
    pub fn take(&mut self, skip: u64, take: u64, shuffled: bool) -> ParamId {
        let text = match take {
            u64::MAX => format!("skip {skip}"),
            take => format!("skip {skip} take {take}"),
        };
        let none = SlotSet::default;
        let kind = OpKind::Take {
            skip,
            take,
            shuffled,
        };
        self.plain(kind, text, none(), none())
    }

    /// Interns an operator that neither draws nor raises errors, and that costs 1000 picoseconds
    /// per row.
    pub fn plain(
        &mut self,
        kind: OpKind,
        text: String,
        reads: SlotSet,
        writes: SlotSet,
    ) -> ParamId {
        self.lookup(kind, text, reads, writes, false)
    }

    /// Interns a lookup, or another operator that does not draw. `fallible` is true if computing a
    /// key may raise an error.
    pub fn lookup(
        &mut self,
        kind: OpKind,
        text: String,
        reads: SlotSet,
        writes: SlotSet,
        fallible: bool,
    ) -> ParamId {
        self.intern(OpSpec {
            kind,
            text,
            reads,
            writes,
            draws: false,
            fallible,
            pinned: false,
            algebra: Algebra::Opaque,
            cost: FunctionCost::from(OpCost {
                ps_per_row: 1_000,
                ..OpCost::default()
            }),
            percent: 100,
        })
    }
}
