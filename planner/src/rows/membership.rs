//! Membership: the operators and columns of a plan that decide which stored rows reach the output,
//! and how often.

use std::collections::BTreeSet;

use datafusion::common::{Result, not_impl_err};

use super::finalize::prune_columns;
pub use super::plan::visit_stream;
use super::{RowOp, RowPlan, draws, human};
use crate::key_columns::is_hidden;

/// True if each stored row yields exactly one row.
pub fn is_one_to_one(plan: &RowPlan) -> bool {
    let mut one_to_one = true;
    visit_stream(plan, &mut |node| one_to_one &= node.op.is_one_to_one());
    one_to_one
}

/// True if a stored row may yield several rows.
pub fn multiplies(plan: &RowPlan) -> bool {
    let mut multiplies = false;
    visit_stream(plan, &mut |node| multiplies |= node.op.multiplies());
    multiplies
}

/// Removes every column that decides neither which rows reach the output nor how they are grouped.
pub fn membership(plan: RowPlan) -> Result<RowPlan> {
    // A cache holds more columns than a membership plan needs, so the cache is bypassed.
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

/// True if the plan has hidden columns that decide the groups of rows.
pub fn is_keyed(plan: &RowPlan) -> bool {
    plan.schema
        .fields()
        .iter()
        .any(|field| is_hidden(field.name()))
}

/// The scans that feed each arm of the plan's MIX, by occurrence and without the right sides of
/// lookups. Empty without a MIX.
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

/// Returns the [`membership`] plan that decides which rows of a MIX reach the output. Its arms drop
/// no rows, except those without elements to unnest, since an arm drops its rows before they are
/// drawn. Without a MIX, returns the membership plan of the whole plan.
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

/// Removes a filter or a limit, and makes a lookup keep the rows without a match, so that the
/// operator drops no row.
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

/// True if draws decide which rows reach the output of a [`membership`] plan.
pub fn is_random(plan: &RowPlan) -> bool {
    let mut random = false;
    visit_stream(plan, &mut |node| {
        random |= node.op.exprs().into_iter().any(draws);
    });
    random
}

/// Returns an expression of a [`membership`] plan that calls a function which does not declare
/// itself deterministic, if there is one. Each evaluation may decide differently which rows reach
/// the output.
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

/// Checks that the stored rows of every LIMIT can be found when the pipeline is opened. This needs
/// the written plan, since a refusal must not depend on where the optimiser moved the limit.
///
/// # Errors
/// Fails on a LIMIT over unnest, or over a filter that draws.
pub fn check_limits(plan: &RowPlan) -> Result<()> {
    plan.inputs.iter().try_for_each(check_limits)?;
    let RowOp::Limit { fetch, .. } = plan.op else {
        return Ok(());
    };
    // The limits below this one are resolved first, and are then no longer operators.
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
