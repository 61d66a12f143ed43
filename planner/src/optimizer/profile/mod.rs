//! Profiles: the effect of operators on the sizes and the number of a few rows.
//!
//! Types reveal the size of a resized image, but not that of a folder's photos, nor how many rows a
//! predicate keeps. If a choice depends on these facts, the written plan is run over a few rows,
//! chosen by hash, operator by operator. A profile contains no times, so the same data lead to the
//! same plan.

mod late;
mod probe;
mod sizes;
mod table;
mod walk;

pub use late::first;
pub use probe::{Evaluated, Probe, ROWS, is_guessed};
pub use sizes::Profile;
