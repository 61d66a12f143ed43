//! The type of facts about a plan's rows, which e-classes carry.

use std::sync::Arc;

use super::ids::{LiveSlotsId, ParamId, TypeId};
use super::log2::Log2;
use super::slot_map::SlotMap;
use super::slots::{Slot, SlotSet};

/// A slot of a plan: its type and its approximate bytes per row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The type of the column.
    pub data_type: TypeId,
    /// Approximate number of bytes per row.
    pub bytes: Log2,
    /// The stored column with whose size this column's size correlates, if there is one: a filter
    /// that keeps the larger photos keeps the larger images.
    pub stored: Option<Slot>,
}

/// Facts about the rows of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFact {
    /// The slots, with their types and sizes.
    pub columns: SlotMap<Column>,
    /// Estimated number of rows per epoch.
    pub rows: Log2,
    /// Number of rows among which the epochs choose theirs: without TAKE or a mix, the same as
    /// `rows`.
    pub pool: Log2,
    /// An operator of the plan that draws, if there is one.
    pub draws: Option<ParamId>,
    /// An operator after which a row is not identified by its place in a file, if there is one.
    pub unaddressed: Option<ParamId>,
}

impl PlanFact {
    /// The slots.
    pub fn slots(&self) -> SlotSet {
        self.columns.slots().collect()
    }

    /// True if the two plans have the same slots with the same types.
    pub fn agrees(&self, other: &Self) -> bool {
        fn types(plan: &PlanFact) -> impl Iterator<Item = (Slot, TypeId)> {
            let columns = plan.columns.iter();
            columns.map(|(slot, column)| (slot, column.data_type))
        }
        types(self).eq(types(other))
    }

    /// Estimated bytes per row of all slots.
    pub fn live_bytes(&self) -> u128 {
        self.columns.values().map(|c| c.bytes.number()).sum()
    }

    /// Estimated bytes per row of the given slots.
    pub fn bytes<'a>(&'a self, slots: impl Iterator<Item = Slot> + 'a) -> u128 {
        slots
            .filter_map(|s| self.columns.get(s))
            .map(|c| c.bytes.number())
            .sum()
    }
}

/// The fact of a node's class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A leaf that names an operator.
    Param(ParamId),
    /// A leaf that names the slots passed on.
    LiveSlots(LiveSlotsId),
    /// A plan.
    Plan(Arc<PlanFact>),
}

/// The smaller of two optional operators, or the only one.
pub(crate) fn either(a: Option<ParamId>, b: Option<ParamId>) -> Option<ParamId> {
    a.into_iter().chain(b).min()
}
