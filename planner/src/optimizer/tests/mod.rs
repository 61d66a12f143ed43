//! Tests of the whole optimiser: plans, declared functions, the example of cedar's paper, and an oracle that tries every plan.

mod cedar;
mod declared;
mod oracle;
pub(super) mod plans;
