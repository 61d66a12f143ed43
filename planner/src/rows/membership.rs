//! Membership plans: a plan reduced to the operators and columns that decide which stored rows
//! reach the output, how many output rows each yields, and how these are grouped.

use std::collections::BTreeSet;

use datafusion::common::{Result, not_impl_err};

use super::finalize::prune_columns;
pub use super::plan::visit_stream;
use super::{RowOp, RowPlan, draws, human};
use crate::key_columns::is_hidden;

/// True if each stored row yields exactly one output row of `plan`.
pub fn is_one_to_one(plan: &RowPlan) -> bool {
    let mut one_to_one = true;
    visit_stream(plan, &mut |node| one_to_one &= node.op.is_one_to_one());
    one_to_one
}

/// True if a stored row may yield several output rows of `plan`.
pub fn multiplies(plan: &RowPlan) -> bool {
    let mut multiplies = false;
    visit_stream(plan, &mut |node| multiplies |= node.op.multiplies());
    multiplies
}

/// Returns the membership plan of `plan`: all columns are removed that decide neither which rows
/// reach the output, nor into which groups (batches, packs and buckets) output rows are put.
pub fn membership(plan: RowPlan) -> Result<RowPlan> {
    // A cache point would keep all cached columns in the plan, but a membership plan needs only a
    // few columns. So cache points are removed.
    let plan = plan.rewrite(&mut |mut node| {
        Ok(match node.op {
            RowOp::Cache => node.inputs.swap_remove(0),
            _ => node,
        })
    })?;
    let fields = plan.schema.fields().iter().map(|field| field.name());
    let keys: BTreeSet<String> = fields.filter(|name| is_hidden(name)).cloned().collect();
    prune_columns(plan, &keys)
}

/// True if the plan has hidden columns, by which rows are grouped into batches, packs or buckets.
pub fn is_keyed(plan: &RowPlan) -> bool {
    plan.schema
        .fields()
        .iter()
        .any(|field| is_hidden(field.name()))
}

/// For each arm of the plan's MIX, the numbers (`occurrence`) of the arm's scans, without scans on
/// the right side of a lookup. Empty if the plan has no MIX.
pub fn arm_scans(plan: &RowPlan) -> Vec<BTreeSet<u32>> {
    let scans = |arm: &RowPlan| {
        let mut scans = BTreeSet::new();
        visit_stream(arm, &mut |node| {
            if let RowOp::Scan { occurrence, .. } = node.op {
                scans.insert(occurrence);
            }
        });
        scans
    };
    plan.arms().unwrap_or_default().iter().map(scans).collect()
}

/// Returns the [`membership`] plan that decides which rows drawn by the plan's MIX reach the
/// output. An arm drops rows before rows are drawn, so filters, limits and joins of the arms are
/// made to keep all rows. If the plan has no MIX, returns the membership plan of the whole plan.
pub fn above_mix(plan: RowPlan) -> Result<RowPlan> {
    let plan = plan.rewrite(&mut |mut node| {
        if let RowOp::Mix(_) = node.op {
            let arms = std::mem::take(&mut node.inputs).into_iter();
            let arms = arms.map(|arm| arm.rewrite(&mut |node| Ok(kept(node))));
            node.inputs = arms.collect::<Result<_>>()?;
        }
        Ok(node)
    })?;
    membership(plan)
}

/// Removes `node` if it is a filter or a limit. If `node` is a lookup, makes the lookup keep rows
/// without a match. Afterwards, only an unnest may drop rows.
fn kept(mut node: RowPlan) -> RowPlan {
    match &mut node.op {
        RowOp::Filter { .. } | RowOp::Limit { .. } => node.inputs.swap_remove(0),
        RowOp::Lookup { keep_unmatched, .. } => {
            *keep_unmatched = true;
            node
        }
        _ => node,
    }
}

/// True if random draws decide which rows reach the output of `plan`, a [`membership`] plan.
pub fn is_random(plan: &RowPlan) -> bool {
    let mut random = false;
    visit_stream(plan, &mut |node| {
        random |= node.op.exprs().into_iter().any(draws);
    });
    random
}

/// Returns the text of an expression in `plan`, a [`membership`] plan, that calls a function that
/// is not declared deterministic, if any. With such an expression, each evaluation may let other
/// rows reach the output.
pub fn volatile(plan: &RowPlan) -> Option<String> {
    let mut found = None;
    visit_stream(plan, &mut |node| {
        let call = node
            .op
            .exprs()
            .into_iter()
            .find(|e| forebay_udfs::is_volatile(e));
        found = found.take().or(call.map(human));
    });
    found
}

/// Checks that the stored rows that each LIMIT keeps can be determined when the pipeline is opened.
/// `plan` must be the written plan, since a refusal must not depend on the position to which the
/// optimiser moves a LIMIT.
///
/// # Errors
/// Fails on a LIMIT over an unnest, or over a filter that draws random numbers.
pub fn check_limits(plan: &RowPlan) -> Result<()> {
    plan.inputs.iter().try_for_each(check_limits)?;
    let RowOp::Limit { fetch, .. } = plan.op else {
        return Ok(());
    };
    // When the pipeline is opened, the limits below this limit are resolved first, so limits below
    // are ignored here.
    let input = plan.inputs[0].clone().rewrite(&mut |mut node| {
        Ok(match node.op {
            RowOp::Limit { .. } => node.inputs.swap_remove(0),
            _ => node,
        })
    })?;
    if fetch == Some(0) || is_one_to_one(&input) {
        return Ok(());
    }
    if multiplies(&input) {
        return not_impl_err!(
            "LIMIT over unnest is not supported yet; put the LIMIT in a subquery below it, or use TAKE"
        );
    }
    if is_random(&membership(input)?) {
        return not_impl_err!("LIMIT over a random filter is not supported yet; use TAKE");
    }
    Ok(())
}
