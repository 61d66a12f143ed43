//! Python functions in plans: their declarations and types, their calls, and the columns that they
//! return.

pub(crate) mod class;
pub(crate) mod lease;

mod build;
mod caller;
mod dense;
mod rows;
mod types;
mod values;
