//! The planner of Forebay: from SQL text or builder calls to one logical pipeline.

pub mod batches;
pub mod builder;
pub mod catalog;
pub mod clauses;
pub mod compile;
pub mod error;
pub mod functions;
pub mod groups;
pub mod limits;
pub mod mix;
pub mod optimizer;
pub mod pipeline;
pub mod rows;
pub mod saved;
pub mod source;
pub mod sql;
#[cfg(test)]
mod testing;
pub mod units;
