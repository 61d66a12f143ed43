//! The rows that a fragment computes from some splits, in stored order.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::compute::Segment;
use super::context::SegmentContext;
use super::staging::stage;
use super::window::Window;
use crate::fragment::row_batch::RowBatch;
use crate::order::{self, RowLocation, StoredRow, WindowSplits};
use crate::prefetch::ahead;

/// Number of windows that are staged at a time: the current one and the next.
const WINDOWS_AHEAD: usize = 2;

/// Computes the rows of some splits, in stored order. The position of a row is the number of its stored row in the
/// snapshot.
pub(crate) fn stored_order(
    context: &SegmentContext,
    splits: Range<u32>,
    pass: u64,
) -> BoxStream<'static, Result<RowBatch>> {
    let in_flight = context.env.in_flight.max(1);
    let windows = order::windows(&context.data.snapshot, splits, None, pass);
    let ctx = context.clone();
    let stage = move |window| segments(ctx.clone(), window, pass);
    let staged = ahead(stream::iter(windows), WINDOWS_AHEAD, stage, Err);
    let segments = staged.map_ok(stream::iter).try_flatten();
    let ctx = context.clone();
    let read = move |work: Result<WindowRows>| {
        let ctx = ctx.clone();
        async move {
            let (window, places) = work?;
            Segment::read(&ctx, vec![window], places).await
        }
    };
    let ctx = context.clone();
    let compute = move |segment: Result<Segment>| {
        let ctx = ctx.clone();
        async move { segment?.compute(&ctx).await }
    };
    let read = ahead(segments, in_flight, read, Err);
    ahead(read, in_flight, compute, Err)
        .map_ok(|pieces| stream::iter(pieces.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

/// Rows of a segment, and the window that they belong to.
type WindowRows = (Arc<Window>, Vec<RowLocation>);

/// Stages a window, and cuts its rows into segments.
async fn segments(
    context: SegmentContext,
    window: WindowSplits,
    pass: u64,
) -> Result<Vec<Result<WindowRows, DataFusionError>>> {
    let staged = Arc::new(stage(&context, &window).await?);
    let rows = context
        .order(window, None, pass, Some(Arc::clone(&staged)))
        .await?;
    let snapshot = &context.data.snapshot;
    let at = |row: &StoredRow| row.at(snapshot.stored(*row), pass);
    let size = usize::try_from(context.rows_by_bytes()).unwrap_or(usize::MAX);
    let segments = rows.chunks(size).map(|rows| {
        let places = rows.iter().map(at).collect();
        Ok((Arc::clone(&staged), places))
    });
    Ok(segments.collect())
}
