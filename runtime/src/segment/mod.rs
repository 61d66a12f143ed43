//! Segments: rows of one or more windows, read and computed together.
//!
//! A segment is a pure function of the opened pipeline and a [`SegmentRequest`], which names the
//! segment's stored rows and the windows of these rows. Reading and computing a segment do not need
//! the stream's accountant, so any process that opens the same pipeline could compute the segment.

mod cached_prefix;
mod compute;
mod context;
mod data;
mod lazy_window;
mod reader;
mod request;
mod staging;
mod stored_order;
mod window;

pub(crate) use cached_prefix::{CacheSetup, CachedPrefix, key_of};
pub(crate) use compute::ReadSegment;
pub(crate) use context::{Env, SegmentContext};
pub(crate) use data::StoredData;
pub(crate) use lazy_window::{LazyWindow, WindowCache};
pub(crate) use reader::FragmentReader;
pub(crate) use request::SegmentRequest;
pub(crate) use stored_order::stored_order;
