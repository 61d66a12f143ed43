//! The planner of Forebay: from SQL text or builder calls to one logical pipeline.

pub mod clauses;
pub mod compile;
pub mod rows;
pub mod source;
