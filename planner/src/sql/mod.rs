//! The SQL dialect: statements, queries followed by training clauses, and their planning.

mod array;
mod casts;
mod check;
mod clause;
mod cursor;
mod diagnose;
mod dialect;
mod expression;
mod fold;
mod long_list;
#[cfg(test)]
mod mistakes;
mod mix;
mod names;
mod octet_length;
mod options;
mod parse;
mod plan;
mod provider;
mod select;
mod source;
mod statement;
mod table_function;
mod walk;

pub use crate::clauses::ClausePositions;
pub use dialect::ForebayDialect;
pub use parse::parse;
pub use statement::{ExplainMode, ExplainTarget, Name, PipelineQuery, Statement};

pub(crate) use array::{numeric_arrays, numeric_list};
pub(crate) use casts::check_casts;
pub(crate) use check::relations;
pub(crate) use diagnose::explain_unplaced;
pub(crate) use expression::select_list;
pub(crate) use names::{several, spelled};
pub(crate) use octet_length::octet_length;
pub(crate) use plan::QueryPlanner;
pub(crate) use table_function::{canonical_name, table_calls};
