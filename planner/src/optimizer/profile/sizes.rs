//! Measured sizes and selectivities of a plan's operators.

use std::collections::HashMap;

use crate::optimizer::ids::ParamId;
use crate::optimizer::log2::Log2;
use crate::optimizer::slots::Slot;

/// Sizes and selectivities measured on a few rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Bytes per row of each slot that a scan reads.
    pub stored: HashMap<Slot, Log2>,
    /// Bytes that an operator writes per byte that it reads.
    pub growth: HashMap<ParamId, Log2>,
    /// Fraction of its input rows that a filter keeps.
    pub kept: HashMap<ParamId, Log2>,
    /// Mean bytes per row of a stored column among the rows that a filter keeps, divided by the
    /// mean among the filter's input rows.
    pub narrowed: HashMap<(ParamId, Slot), Log2>,
}
