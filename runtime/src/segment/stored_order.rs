//! Computation of a fragment's rows in stored order, without a shuffle.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::Result;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::compute::ReadSegment;
use super::context::SegmentContext;
use super::lazy_window::LazyWindow;
use super::request::SegmentRequest;
use crate::fragment::row_batch::RowBatch;
use crate::order::{self, StoredRow, WindowSplits};
use crate::prefetch::ahead;

/// Number of windows that are staged at the same time: the current window and the next one.
const WINDOWS_AHEAD: usize = 2;

/// Computes the rows of `splits`, a range of the snapshot's splits, in stored order. The position
/// of an output row is the number of its stored row in the snapshot.
pub(crate) fn stored_order(
    context: &SegmentContext,
    splits: Range<u32>,
    pass: u64,
) -> BoxStream<'static, Result<RowBatch>> {
    let in_flight = context.env.in_flight;
    let windows = order::windows(&context.data.snapshot, splits, None, pass);
    let ctx = context.clone();
    let stage = move |window| segments(ctx.clone(), window, pass);
    let staged = ahead(stream::iter(windows), WINDOWS_AHEAD, stage, Err);
    let segments = staged.map_ok(stream::iter).try_flatten();
    let ctx = context.clone();
    let read = move |request: Result<SegmentRequest>| {
        let ctx = ctx.clone();
        async move { request?.read(&ctx).await }
    };
    let ctx = context.clone();
    let compute = move |segment: Result<ReadSegment>| {
        let ctx = ctx.clone();
        async move { segment?.compute(&ctx).await }
    };
    let read = ahead(segments, in_flight, read, Err);
    ahead(read, in_flight, compute, Err)
        .map_ok(|pieces| stream::iter(pieces.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

/// Stages the window that consists of `splits`, and cuts its rows into segments.
async fn segments(
    context: SegmentContext,
    splits: WindowSplits,
    pass: u64,
) -> Result<Vec<Result<SegmentRequest>>> {
    let window = Arc::new(LazyWindow::new(&context, splits));
    let rows = window.order(None, pass, true).await?;
    let snapshot = &context.data.snapshot;
    let at = |row: &StoredRow| row.at(snapshot.stored(*row), pass);
    let size = usize::try_from(context.rows_by_bytes()).unwrap_or(usize::MAX);
    let segments = rows.chunks(size).map(|rows| {
        Ok(SegmentRequest {
            windows: vec![Arc::clone(&window)],
            places: rows.iter().map(at).collect(),
            are_kept: true,
            wanted: None,
            by_child: false,
            planned: None,
        })
    });
    Ok(segments.collect())
}
