//! The stream as arithmetic: the batch, rank and step of each row, and the cursor after each batch.
//!
//! The module is pure: it reads no file, starts no task and reads no clock. Therefore, the planning
//! of a run, the counting of its steps and the delivery of its batches can use the same accountant.

pub(crate) mod accountant;
pub mod assignment;
pub mod cursor;
pub mod digest;
pub mod group;
pub(crate) mod origin;
pub mod token;
