//! Opening of row plans: reads the right sides of lookups, and resolves limits to stored rows.
//!
//! A LIMIT inside a query applies to stored order, so it determines which stored rows a pipeline
//! sees. Limits are resolved when the pipeline is opened, so no operator of a fragment executes a
//! LIMIT.

use std::collections::BTreeMap;
use std::ops::Range;

use datafusion::common::{Result, internal_err, not_impl_err};
use forebay_planner::rows::membership::{is_one_to_one, is_random};
use forebay_planner::rows::{RowOp, RowPlan};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};

use super::lookups::{Lookups, lookups_of};
use super::open_plan::OpenPlan;
use crate::segment::{Env, SegmentContext, StoredData, stored_order};

/// Opens `plan`: reads the right sides of its lookups, resolves its limits to stored rows, and
/// plans its fragments.
///
/// # Errors
/// Fails if the right side of a lookup calls random functions, cannot be read or has a duplicate
/// key, or if a file cannot be read.
pub(super) fn open<'a>(plan: &'a RowPlan, env: &'a Env) -> BoxFuture<'a, Result<OpenPlan>> {
    async move {
        let mut opening = PlanOpening {
            env,
            lookups: Lookups::default(),
            ranges: BTreeMap::new(),
        };
        opening.read_lookups(plan).await?;
        let plan = opening.resolve(plan.clone()).await?;
        opening.open(&plan).await
    }
    .boxed()
}

/// A plan that is being opened.
struct PlanOpening<'a> {
    env: &'a Env,
    lookups: Lookups,
    /// Stored rows that remain under the limits resolved so far, by occurrence number of their
    /// scan. A scan that is not in the map has all its rows.
    ranges: BTreeMap<u32, Range<u64>>,
}

impl PlanOpening<'_> {
    /// Reads the right sides of all lookups of `plan`, including lookups below a LIMIT.
    async fn read_lookups(&mut self, plan: &RowPlan) -> Result<()> {
        for lookup in lookups_of(plan) {
            let right = &lookup.inputs[1];
            if is_random(right) {
                return not_impl_err!(
                    "a random function on the right side of a JOIN is not supported yet"
                );
            }
            let right = open(right, self.env).await?;
            self.lookups.add(lookup, &right, self.env).await?;
        }
        Ok(())
    }

    /// Opens `plan`, which has no LIMIT, over the row ranges that remain.
    async fn open(&self, plan: &RowPlan) -> Result<OpenPlan> {
        OpenPlan::over(plan, &self.ranges, self.lookups.of(plan)?, self.env).await
    }

    /// Returns `plan` without its limits, after narrowing the range of each scan to the stored rows
    /// that remain under the limits.
    fn resolve(&mut self, mut plan: RowPlan) -> BoxFuture<'_, Result<RowPlan>> {
        async move {
            // The right side of a lookup is opened separately.
            let streams = plan.op.streamed_inputs(plan.inputs.len());
            for input in &mut plan.inputs[..streams] {
                *input = self.resolve(input.clone()).await?;
            }
            let RowOp::Limit { skip, fetch } = plan.op else {
                return Ok(plan);
            };
            let input = plan.inputs.swap_remove(0);
            let kept = self.kept_rows(&input, skip, fetch).await?;
            self.narrow(&input, kept)?;
            Ok(input)
        }
        .boxed()
    }

    /// Returns the range of stored rows that a LIMIT with `skip` and `fetch` above `input` keeps.
    /// Stored rows are numbered from 0 over all scans of `input`.
    async fn kept_rows(
        &self,
        input: &RowPlan,
        skip: u64,
        fetch: Option<u64>,
    ) -> Result<Range<u64>> {
        if fetch == Some(0) {
            return Ok(0..0);
        }
        let until = fetch.map_or(u64::MAX, |fetch| skip.saturating_add(fetch));
        if is_one_to_one(input) {
            return Ok(skip..until);
        }
        let below = self.open(input).await?;
        let Some(membership) = &below.membership else {
            return Ok(skip..until);
        };
        if membership.is_random || below.multiplies {
            return internal_err!("the engine got a LIMIT that the planner should have refused");
        }
        let (mut seen, mut range) = (0, u64::MAX..u64::MAX);
        let splits = 0..below.data.snapshot.splits.len() as u32;
        let context = SegmentContext::new(&below.data, &membership.reader, self.env);
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

    /// Restricts the scans of `input`, the plan below a LIMIT, to the stored rows `kept`, which are
    /// numbered over all these scans.
    fn narrow(&mut self, input: &RowPlan, kept: Range<u64>) -> Result<()> {
        let snapshot = StoredData::of_plan(input, &self.ranges)?.snapshot;
        let mut at = 0;
        for (index, scan) in (0..).zip(&snapshot.scans) {
            let (start, rows) = (scan.range.start, snapshot.scan_rows(index));
            let from = kept.start.clamp(at, at + rows) - at;
            let to = kept.end.clamp(at, at + rows) - at;
            let range = start + from..start + to.max(from);
            self.ranges.insert(scan.occurrence, range);
            at += rows;
        }
        Ok(())
    }
}
