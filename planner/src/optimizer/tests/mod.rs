//! Tests of the whole optimiser: plans, functions that a host declares, the example in the paper on
//! cedar, and a comparison with an enumeration of all plans.

mod cedar;
mod declared;
mod oracle;
pub(super) mod plans;
