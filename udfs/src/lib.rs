//! The functions of Forebay, each with what the optimiser may assume of it.

pub mod draw;
pub mod facts;
pub mod hash;
pub mod row;
