//! Opening of row plans: reads the right sides of lookups and resolves limits.

use std::collections::BTreeMap;

use datafusion::common::{Result, not_impl_err};
use forebay_planner::rows::membership::{is_random, visit_stream};
use forebay_planner::rows::{RowOp, RowPlan};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::limit;
use super::lookups::{Lookups, lookups_of};
use super::open_plan::OpenPlan;
use crate::segment::Env;

/// Opens a plan: reads the right sides of its lookups, resolves its limits to stored rows, and plans its fragments.
///
/// # Errors
/// Fails if a right side is random, cannot be read or has a duplicate key, or a file cannot be read.
pub(super) fn open<'a>(plan: &'a RowPlan, env: &'a Env) -> BoxFuture<'a, Result<OpenPlan>> {
    async move {
        let mut ranges = BTreeMap::new();
        visit_stream(plan, &mut |node| {
            if let RowOp::Scan { occurrence, .. } = &node.op {
                ranges.insert(*occurrence, 0..u64::MAX);
            }
        });
        let lookups = read_lookups(plan, env).await?;
        let plan = limit::resolve(plan.clone(), &mut ranges, &lookups, env).await?;
        OpenPlan::over(&plan, &ranges, &lookups, env).await
    }
    .boxed()
}

/// Reads the right sides of all lookups of a plan, including those below its limits.
async fn read_lookups(plan: &RowPlan, env: &Env) -> Result<Lookups> {
    let mut lookups = Lookups::default();
    for lookup in lookups_of(plan) {
        let right = &lookup.inputs[1];
        if is_random(right) {
            return not_impl_err!(
                "a random function on the right side of a JOIN is not supported yet"
            );
        }
        let right = open(right, env).await?;
        let data = right.all_data().cloned().collect();
        lookups.add(lookup, (&right.reader, data), env).await?;
    }
    Ok(lookups)
}
