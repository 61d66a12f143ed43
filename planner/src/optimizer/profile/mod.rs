//! Profiles: sizes and selectivities of a plan's operators, measured on a few rows.
//!
//! The size of a resized image follows from its type. But neither the size of a stored photo, nor
//! the fraction of rows that a predicate keeps, follows from a type. If the choice of a plan
//! depends on such facts, the operators of the written plan are run over a few rows, which are
//! chosen by hash. No times are measured, so the same data lead to the same plan.

mod late;
mod probe;
mod sizes;
mod table;
mod walk;

pub use late::first;
pub use probe::{Evaluated, Probe, ROWS, is_guessed};
pub use sizes::Profile;
