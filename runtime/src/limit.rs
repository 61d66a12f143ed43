//! LIMIT inside a query acts on stored order, so it says which stored rows a pipeline sees. It is
//! resolved when the pipeline is opened, and is no operator of a fragment.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use forebay_planner::rows::membership::{is_one_to_one, visit_stream};
use forebay_planner::rows::{RowOp, RowPlan};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};

use crate::job::{Env, Job, stored_rows};
use crate::lookups::Lookups;
use crate::segment;

/// Removes the limits of `plan`, narrowing `ranges` (by scan occurrence) to the stored rows that
/// they leave.
pub fn resolve<'a>(
    mut plan: RowPlan,
    ranges: &'a mut BTreeMap<u32, Range<u64>>,
    lookups: &'a Lookups,
    env: &'a Env,
) -> BoxFuture<'a, Result<RowPlan>> {
    async move {
        // The right side of a lookup is a job of its own.
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

/// The stored rows below a limit, numbered over its scans, that it leaves.
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
    let job = Arc::new(Job::over(input, ranges, lookups, env).await?);
    let Some(membership) = &job.membership else {
        return Ok(skip..until);
    };
    if membership.is_random || job.multiplies {
        return internal_err!("a LIMIT that the planner refuses came to the engine");
    }
    let (mut seen, mut range) = (0, u64::MAX..u64::MAX);
    let splits = 0..job.snapshot.splits.len() as u32;
    let mut batches = segment::stored_order(&job, &membership.reader, splits, 0, env);
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
    let snapshot = stored_rows(input, ranges)?;
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
