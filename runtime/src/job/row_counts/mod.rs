//! Row counts: the number of output rows per stored row, counted before the output rows are
//! computed.

mod count_index;
mod count_share;
mod counter;
mod counts;
mod share_name;
mod shares;

pub use count_share::CountShare;
pub(crate) use counter::RowCounter;
pub(crate) use counts::RowCounts;
pub(crate) use share_name::CountCall;
pub use share_name::ShareName;
