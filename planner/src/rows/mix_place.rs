//! Checks the position of a MIX in a plan.

use datafusion::common::{DataFusionError, Result};

use super::membership::{is_random, membership};
use super::op::RowOp;
use super::plan::RowPlan;
use crate::error::PlanError;

/// Refuses a MIX at a position in `plan` where a MIX has no meaning, or is not supported yet. An
/// accepted plan has at most one MIX, and no union or limit above that MIX.
///
/// # Errors
/// Returns a [`PlanError`] about the MIX, without a line and column.
pub(crate) fn check(plan: &RowPlan) -> Result<()> {
    refuse(plan, None)?;
    let Some(arms) = plan.arms() else {
        return Ok(());
    };
    for (number, arm) in (1..).zip(arms) {
        // The rows of an arm are counted only once. Every pass over the arm relies on this count,
        // but a random filter would keep another number of rows in each pass.
        if is_random(&membership(arm.clone())?) {
            let what = format!("a random filter inside a MIX, in arm {number},");
            let error = PlanError::unsupported(None, &what);
            return Err(mistake(
                error.with_hint("filter the rows of the MIX instead"),
            ));
        }
    }
    Ok(())
}

/// True if `plan` contains a MIX, at any depth.
fn has_mix(plan: &RowPlan) -> bool {
    matches!(plan.op, RowOp::Mix(_)) || plan.inputs.iter().any(has_mix)
}

fn refuse(plan: &RowPlan, why: Option<&PlanError>) -> Result<()> {
    let unsupported = |what: &str| PlanError::unsupported(None, what);
    let here = match &plan.op {
        RowOp::Mix(_) => {
            if let Some(PlanError::Mistake(why)) = why {
                return Err(mistake(PlanError::Mistake(why.clone())));
            }
            Some(unsupported("a MIX inside a MIX"))
        }
        RowOp::Union => Some(unsupported("MIX under UNION ALL")),
        RowOp::Limit { .. } => {
            let error = PlanError::mistake(
                "LIMIT counts rows in stored order, but a MIX has no stored order",
            );
            Some(error.with_hint("use TAKE"))
        }
        _ => None,
    };
    if let (RowOp::Lookup { .. }, Some(right)) = (&plan.op, plan.inputs.get(1))
        && has_mix(right)
    {
        return Err(mistake(unsupported("MIX on the right side of a JOIN")));
    }
    let why = here.as_ref().or(why);
    plan.inputs.iter().try_for_each(|input| refuse(input, why))
}

fn mistake(error: PlanError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
