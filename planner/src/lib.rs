//! The planner of Forebay: turns SQL text or builder calls into one logical pipeline, and optimises
//! it.

pub mod batches;
pub mod builder;
pub mod catalog;
pub mod clauses;
pub mod compile;
pub mod error;
pub mod functions;
pub mod groups;
mod key_columns;
pub mod limits;
pub mod mix;
pub mod optimizer;
mod output;
pub mod pipeline;
mod position;
pub mod rows;
pub mod saved;
pub mod secrets;
mod session;
pub mod source;
pub mod sql;
#[cfg(test)]
mod testing;
pub mod units;
#[cfg(feature = "wire")]
pub mod wire;
