//! Segments: rows of one or more windows, read and computed together.
//!
//! A segment is a pure function of the opened pipeline and a [`SegmentName`], which names windows
//! and the positions of rows in them. Reading and computing a segment do not need the stream's
//! accountant, so any process that has opened the same pipeline can compute the segment.

mod cached_prefix;
mod compute;
mod context;
mod data;
mod lazy_window;
mod name;
mod order_cache;
mod ordered;
mod prefix_writer;
mod reader;
mod request;
mod split_cache;
mod staging;
mod stored_order;
mod window;

pub use cached_prefix::CacheUse;
pub(crate) use cached_prefix::{CacheSetup, CachedPrefix, key_of};
pub(crate) use compute::ReadSegment;
pub(crate) use context::{Env, SegmentContext};
pub(crate) use data::StoredData;
pub use data::{SourceNames, cached_location};
pub(crate) use lazy_window::WindowCache;
pub(crate) use name::RowRun;
pub use name::{SegmentName, SegmentWindow};
pub(crate) use order_cache::OrderCache;
pub(crate) use ordered::{OrderedSegment, OrderedWindow, SegmentRows};
pub(crate) use reader::FragmentReader;
pub(crate) use split_cache::SplitCache;
pub(crate) use stored_order::stored_order;
