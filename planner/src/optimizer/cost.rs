//! Costs of operators, in whole picoseconds of one core. Sums of integers do not depend on the
//! order of the terms.

use egg::Id;

use super::arena::Arena;
use super::coefficients::Coefficients;
use super::ids::ParamId;
use super::lang::Node;
use super::plan_fact::PlanFact;
use super::slots::SlotSet;
use super::spec::OpKind;

/// A cost: computing time of one core, in picoseconds.
pub(crate) type Cost = u128;

/// Cost per epoch of `node` without its inputs. `param` is the node's operator, `out` has the facts
/// about the node's rows, and `of` returns the facts about an input. The cost of a plan node is
/// positive, so that the cheapest plan of a class does not contain that class again.
pub(crate) fn self_cost<'a>(
    arena: &Arena,
    prices: &Coefficients,
    node: &Node,
    out: &PlanFact,
    param: Option<ParamId>,
    of: impl Fn(Id) -> Option<&'a PlanFact>,
) -> Cost {
    let moved = |fact: &PlanFact| {
        let row = fact
            .live_bytes()
            .saturating_mul(prices.copy.into())
            .saturating_add(prices.row.into());
        fact.rows.number().saturating_mul(row)
    };
    let cost = match node {
        Node::Param(_) | Node::LiveSlots(_) => return 0,
        Node::Scan(scan) => {
            let price = arena.scan(*scan).row_cost();
            let row = out
                .live_bytes()
                .saturating_mul(price.ps_per_value_in.into())
                .saturating_add(price.ps_per_row.into());
            out.rows.number().saturating_mul(row)
        }
        Node::Cat(_) | Node::Mix(_) => moved(out),
        Node::Op([_, _, input]) => {
            let (Some(param), Some(input)) = (param, of(*input)) else {
                return Cost::MAX;
            };
            let spec = arena.spec(param);
            let each = |param| computing(arena, param, input, out);
            let compute = match spec.kind.members() {
                [] => each(param),
                members => members.iter().map(|&member| each(member)).sum(),
            };
            let compute = input.rows.number().saturating_mul(compute);
            match spec.kind {
                OpKind::Row { .. } | OpKind::Rows(_) => compute,
                OpKind::Filter { .. }
                | OpKind::Filters(_)
                | OpKind::Flatten { .. }
                | OpKind::Lookup { .. } => compute.saturating_add(moved(out)),
                // A batch is a slice of the computed rows and copies no bytes, so its cost does not
                // depend on the size of the rows.
                OpKind::Batch { rows, .. } => {
                    let out = out.rows.number();
                    let batches = out.div_ceil(u128::from(rows).max(1));
                    let batches = u128::from(prices.batch).saturating_mul(batches);
                    let rows = u128::from(prices.row).saturating_mul(out);
                    compute.saturating_add(rows).saturating_add(batches)
                }
                OpKind::Limit { .. } | OpKind::Take { .. } => out.rows.number(),
                // Row keys are shuffled before any row is read, so a shuffle costs the same at
                // every position in a plan.
                OpKind::Shuffle { .. } => 0,
            }
        }
    };
    cost.saturating_add(1)
}

/// Cost of the operator `param` per input row, without the cost of copying columns.
fn computing(arena: &Arena, param: ParamId, input: &PlanFact, out: &PlanFact) -> Cost {
    let spec = arena.spec(param);
    let read = values(arena, input, &spec.reads);
    let written = values(arena, out, &spec.writes);
    let price = if has_floats(arena, input, &spec.reads) {
        spec.cost.floats
    } else {
        spec.cost.bytes
    };
    u128::from(price.ps_per_row)
        .saturating_add(read.saturating_mul(price.ps_per_value_in.into()))
        .saturating_add(written.saturating_mul(price.ps_per_value_out.into()))
}

/// The number of values per row in `slots`: for an image, its elements, and for any other column,
/// its bytes.
fn values(arena: &Arena, fact: &PlanFact, slots: &SlotSet) -> u128 {
    let columns = slots.iter().filter_map(|slot| fact.columns.get(slot));
    let each = columns.map(|column| {
        let element = arena
            .tensor(column.data_type)
            .map_or(1, |t| t.dtype.bytes());
        column.bytes.number() / element as u128
    });
    each.sum()
}

/// True if a slot in `slots` holds images whose elements are floats.
fn has_floats(arena: &Arena, fact: &PlanFact, slots: &SlotSet) -> bool {
    let mut columns = slots.iter().filter_map(|slot| fact.columns.get(slot));
    columns.any(|c| {
        arena
            .tensor(c.data_type)
            .is_some_and(|t| t.dtype.is_float())
    })
}
