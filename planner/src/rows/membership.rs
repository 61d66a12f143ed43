//! Which stored rows reach the output, and how often: the plan that decides it, and nothing else.

use std::collections::BTreeSet;

use datafusion::common::{Result, not_impl_err};

use super::tidy::prune_columns;
use super::{RowOp, RowPlan, draws, human};
use crate::pipeline::is_hidden;

/// Whether each stored row gives exactly one row.
pub fn is_one_to_one(plan: &RowPlan) -> bool {
    let mut one_to_one = true;
    visit_stream(plan, &mut |node| {
        one_to_one &= match &node.op {
            RowOp::Scan { .. }
            | RowOp::Project { .. }
            | RowOp::Union
            | RowOp::Mix(_)
            | RowOp::Cache => true,
            RowOp::Lookup { keep_unmatched, .. } => *keep_unmatched,
            RowOp::Filter { .. } | RowOp::Limit { .. } | RowOp::Unnest { .. } => false,
        };
    });
    one_to_one
}

/// Whether a stored row may give several rows.
pub fn multiplies(plan: &RowPlan) -> bool {
    let mut multiplies = false;
    visit_stream(plan, &mut |node| {
        multiplies |= matches!(node.op, RowOp::Unnest { .. })
    });
    multiplies
}

/// The plan without every column that does not decide which rows reach the output, or how they are grouped.
pub fn membership(plan: RowPlan) -> Result<RowPlan> {
    // What is kept has more columns than decide.
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

/// Whether what decides the groups of rows is among the columns of a plan.
pub fn is_keyed(plan: &RowPlan) -> bool {
    plan.schema
        .fields()
        .iter()
        .any(|field| is_hidden(field.name()))
}

/// The occurrences of the scans whose rows each arm of the plan's MIX gives, in order: not those of the
/// right sides of its lookups. None without a MIX.
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

/// The [`membership`] plan of what stands above the plan's MIX: which of the rows that the arms give reach
/// the output. Its arms keep every row but those that unnest has none for, since what they drop is dropped
/// before an arm is drawn. Without a MIX it is the plan's own.
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

/// The operator as one that drops no row.
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

/// Whether draws decide which rows reach the output of a [`membership`] plan.
pub fn is_random(plan: &RowPlan) -> bool {
    let mut random = false;
    visit_stream(plan, &mut |node| {
        random |= node.exprs().into_iter().any(draws);
    });
    random
}

/// A call that decides which rows reach the output of a [`membership`] plan, and may decide otherwise the
/// next time: of a function that does not say that it is deterministic.
pub fn volatile(plan: &RowPlan) -> Option<String> {
    let mut found = None;
    visit_stream(plan, &mut |node| {
        let call = node
            .exprs()
            .into_iter()
            .find(|e| forebay_udfs::is_volatile(e));
        found = found.take().or(call.map(human));
    });
    found
}

/// Whether the stored rows of every LIMIT can be found when the pipeline is opened. The written plan is asked:
/// what is refused must not depend on where the limit was moved to.
///
/// # Errors
/// A LIMIT over unnest, or over a filter that draws.
pub fn check_limits(plan: &RowPlan) -> Result<()> {
    plan.inputs.iter().try_for_each(check_limits)?;
    let RowOp::Limit { fetch, .. } = plan.op else {
        return Ok(());
    };
    // A limit below it was resolved before, and is an operator no longer.
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

/// Calls `f` on the nodes that stored rows flow through: all but the right sides of lookups.
pub fn visit_stream<'a>(plan: &'a RowPlan, f: &mut impl FnMut(&'a RowPlan)) {
    match &plan.op {
        RowOp::Lookup { .. } => visit_stream(&plan.inputs[0], f),
        _ => plan.inputs.iter().for_each(|input| visit_stream(input, f)),
    }
    f(plan);
}
