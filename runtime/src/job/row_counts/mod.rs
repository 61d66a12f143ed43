//! Row counts: the number of output rows per stored row, counted before the output rows are
//! computed.

mod count_index;
mod counter;
mod counts;
mod shares;

pub(crate) use counter::RowCounter;
pub(crate) use counts::RowCounts;
