//! The tail of a run: assembles computed rows into batches and settles failed rows by the pipeline's policy, in
//! stream order.

mod assembly;
mod batch;
mod budget;
mod counted;
mod counter;
mod failure;
mod held;
mod pack;
mod pad;
mod settle;
mod trial;

pub(crate) use assembly::Tail;
pub use batch::Batch;
pub(crate) use budget::Budget;
pub(crate) use counter::Counter;
pub(crate) use failure::uri;
pub use failure::{Failure, KEPT_FAILURES, RunStats};
pub(crate) use trial::FunctionTrial;
