//! Resolves LIMIT inside a query. It applies to stored order, so it determines which stored rows a
//! pipeline sees. It is resolved when the pipeline is opened, and no operator of a fragment
//! executes it.

use std::collections::BTreeMap;
use std::ops::Range;

use datafusion::common::{Result, internal_err};
use forebay_planner::rows::membership::{is_one_to_one, visit_stream};
use forebay_planner::rows::{RowOp, RowPlan};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};

use super::lookups::Lookups;
use super::open_plan::OpenPlan;
use crate::segment::{Env, SegmentContext, StoredData, stored_order};

/// Removes the limits of `plan`, and narrows `ranges` (by scan occurrence) to the stored rows that remain.
pub(super) fn resolve<'a>(
    mut plan: RowPlan,
    ranges: &'a mut BTreeMap<u32, Range<u64>>,
    lookups: &'a Lookups,
    env: &'a Env,
) -> BoxFuture<'a, Result<RowPlan>> {
    async move {
        // The right side of a lookup is opened separately.
        let streams = if matches!(plan.op, RowOp::Lookup { .. }) {
            1
        } else {
            plan.inputs.len()
        };
        for index in 0..streams {
            let input = plan.inputs[index].clone();
            plan.inputs[index] = resolve(input, ranges, lookups, env).await?;
        }
        let RowOp::Limit { skip, fetch } = plan.op else {
            return Ok(plan);
        };
        let input = plan.inputs.swap_remove(0);
        let kept = kept_rows(&input, ranges, skip, fetch, lookups, env).await?;
        narrow(&input, ranges, kept)?;
        Ok(input)
    }
    .boxed()
}

/// Returns the range of stored rows that a limit keeps, numbered over the scans below the limit.
async fn kept_rows(
    input: &RowPlan,
    ranges: &BTreeMap<u32, Range<u64>>,
    skip: u64,
    fetch: Option<u64>,
    lookups: &Lookups,
    env: &Env,
) -> Result<Range<u64>> {
    if fetch == Some(0) {
        return Ok(0..0);
    }
    let until = fetch.map_or(u64::MAX, |fetch| skip.saturating_add(fetch));
    if is_one_to_one(input) {
        return Ok(skip..until);
    }
    let below = OpenPlan::over(input, ranges, lookups, env).await?;
    let Some(membership) = &below.membership else {
        return Ok(skip..until);
    };
    if membership.is_random || below.multiplies {
        return internal_err!("the engine got a LIMIT that the planner should have refused");
    }
    let (mut seen, mut range) = (0, u64::MAX..u64::MAX);
    let splits = 0..below.data.snapshot.splits.len() as u32;
    let context = SegmentContext::new(&below.data, &membership.reader, env);
    let mut batches = stored_order(&context, splits, 0);
    while let Some(batch) = batches.try_next().await? {
        for &stored in batch.row_ids()?.position.values() {
            if seen == skip {
                range.start = stored;
            }
            seen += 1;
            if seen == until {
                range.end = stored + 1;
                return Ok(range);
            }
        }
    }
    Ok(range)
}

/// Clips the ranges of the scans below a limit to `kept`.
fn narrow(input: &RowPlan, ranges: &mut BTreeMap<u32, Range<u64>>, kept: Range<u64>) -> Result<()> {
    let snapshot = StoredData::of_plan(input, ranges)?.snapshot;
    let mut at = 0;
    let mut occurrences = Vec::new();
    visit_stream(input, &mut |node| {
        if let RowOp::Scan { occurrence, .. } = &node.op {
            occurrences.push(*occurrence);
        }
    });
    for (scan, occurrence) in occurrences.into_iter().enumerate() {
        let rows = snapshot.scan_rows(scan as u32);
        let Some(range) = ranges.get_mut(&occurrence) else {
            continue;
        };
        let from = kept.start.clamp(at, at + rows) - at;
        let to = kept.end.clamp(at, at + rows) - at;
        *range = range.start + from..range.start + to.max(from);
        at += rows;
    }
    Ok(())
}
