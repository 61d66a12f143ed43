//! The types of the facts that each e-class stores.

use std::sync::Arc;

use super::ids::{LiveSlotsId, ParamId, TypeId};
use super::log2::Log2;
use super::slot_map::SlotMap;
use super::slots::{Slot, SlotSet};

/// The type and the estimated size of a slot's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The type of the column, as an index into the arena's types.
    pub data_type: TypeId,
    /// Estimated number of bytes per row.
    pub bytes: Log2,
    /// The stored column with whose size this column's size correlates, if any. For example, a
    /// filter that keeps rows with large JPEG files also keeps rows with large decoded images.
    pub stored: Option<Slot>,
}

/// Facts about the rows of a plan: the columns, the number of rows, and the operators that may
/// forbid caching the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFact {
    /// The slots of each row, with their types and sizes.
    pub columns: SlotMap<Column>,
    /// Estimated number of rows per epoch.
    pub rows: Log2,
    /// Estimated number of distinct rows that all epochs together may read. This is equal to
    /// `rows`, except in a plan with a shuffled TAKE or a mix, whose epochs may have different
    /// rows.
    pub pool: Log2,
    /// An operator of the plan that draws random numbers; `None` if no operator does.
    pub draws: Option<ParamId>,
    /// An operator whose output rows are not identified by the position of one stored row: a
    /// lookup, an unnest or a batch. `None` if the plan has no such operator.
    pub unaddressed: Option<ParamId>,
}

impl PlanFact {
    /// The slots of each row.
    pub fn slots(&self) -> SlotSet {
        self.columns.slots().collect()
    }

    /// True if this plan and `other` have the same slots with the same types.
    pub fn agrees(&self, other: &Self) -> bool {
        fn types(plan: &PlanFact) -> impl Iterator<Item = (Slot, TypeId)> {
            let columns = plan.columns.iter();
            columns.map(|(slot, column)| (slot, column.data_type))
        }
        types(self).eq(types(other))
    }

    /// Estimated bytes per row, the sum over all slots.
    pub fn live_bytes(&self) -> u128 {
        self.columns.values().map(|c| c.bytes.number()).sum()
    }

    /// Estimated bytes per row, the sum over those of `slots` that the plan has.
    pub fn bytes<'a>(&'a self, slots: impl Iterator<Item = Slot> + 'a) -> u128 {
        slots
            .filter_map(|s| self.columns.get(s))
            .map(|c| c.bytes.number())
            .sum()
    }
}

/// The facts of an e-class, depending on the kind of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The class of a leaf that names this operator.
    Param(ParamId),
    /// The class of a leaf that names this set of slots.
    LiveSlots(LiveSlotsId),
    /// A class of plans, which all have the same rows, with the facts about these rows.
    Plan(Arc<PlanFact>),
}

/// The operator with the smaller index. If only one of `a` and `b` is present, returns that one.
pub(crate) fn either(a: Option<ParamId>, b: Option<ParamId>) -> Option<ParamId> {
    a.into_iter().chain(b).min()
}
