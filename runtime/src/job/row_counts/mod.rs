//! Row counts: the number of rows that each stored row gives, known before any row is computed.

mod count_index;
mod counter;
mod counts;
mod shares;

pub(crate) use counter::RowCounter;
pub(crate) use counts::RowCounts;
