//! The type of measured sizes and selectivities.

use std::collections::HashMap;

use crate::optimizer::ids::ParamId;
use crate::optimizer::log2::Log2;
use crate::optimizer::slots::Slot;

/// Sizes and selectivities of a plan's operators, measured on a few rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Mean bytes per row of each slot that a scan reads.
    pub stored: HashMap<Slot, Log2>,
    /// For each row operator measured, the bytes that the operator writes, divided by the bytes
    /// that the operator reads.
    pub growth: HashMap<ParamId, Log2>,
    /// For each filter measured, the fraction of its input rows that the filter keeps.
    pub kept: HashMap<ParamId, Log2>,
    /// For a filter and a stored column, the column's mean bytes per row among the rows that the
    /// filter keeps, divided by the column's mean bytes per row among all input rows of the filter.
    pub narrowed: HashMap<(ParamId, Slot), Log2>,
}
