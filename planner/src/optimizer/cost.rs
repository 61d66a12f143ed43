//! What a plan costs: whole picoseconds of one core, so that sums do not depend on their order.

use egg::Id;

use super::arena::{Arena, ParamId};
use super::coefficients::Coefficients;
use super::facts::PlanFact;
use super::lang::Node;
use super::slots::SlotSet;
use super::spec::OpKind;

/// A cost in picoseconds.
pub type Cost = u128;

/// What a node itself costs, given the facts of its class and of its inputs, and its operator. More than zero, so that
/// no best plan holds itself.
pub fn self_cost<'a>(
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
        Node::Param(_) | Node::Keep(_) => return 0,
        Node::Scan(scan) => {
            let price = arena.scan(*scan).cost;
            let row = out
                .live_bytes()
                .saturating_mul(price.ps_per_value_in.into())
                .saturating_add(price.ps_per_row.into());
            out.rows.number().saturating_mul(row)
        }
        Node::Cat(_) | Node::Zip(_) | Node::Mix(_) => moved(out),
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
                // Bytes stay where they are: a batch is a part of what was computed.
                OpKind::Batch { rows, .. } => {
                    let out = out.rows.number();
                    let batches = out.div_ceil(u128::from(rows).max(1));
                    let batches = u128::from(prices.batch).saturating_mul(batches);
                    let rows = u128::from(prices.row).saturating_mul(out);
                    compute.saturating_add(rows).saturating_add(batches)
                }
                OpKind::Limit { .. } | OpKind::Take { .. } => out.rows.number(),
                // Keys are ordered, before anything is read: no plan is the cheaper for where it stands.
                OpKind::Shuffle { .. } => 0,
            }
        }
    };
    cost.saturating_add(1)
}

/// The cost of an operator for a row, apart from the bytes that it moves.
fn computing(arena: &Arena, param: ParamId, input: &PlanFact, out: &PlanFact) -> Cost {
    let spec = arena.spec(param);
    let read = values(arena, input, &spec.reads);
    let written = values(arena, out, &spec.writes);
    let price = match has_floats(arena, input, &spec.reads) {
        true => spec.cost.floats,
        false => spec.cost.bytes,
    };
    u128::from(price.ps_per_row)
        .saturating_add(read.saturating_mul(price.ps_per_value_in.into()))
        .saturating_add(written.saturating_mul(price.ps_per_value_out.into()))
}

/// Elements of images and bytes of other columns in a row.
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

/// Whether images of floats are among the slots.
fn has_floats(arena: &Arena, fact: &PlanFact, slots: &SlotSet) -> bool {
    let mut columns = slots.iter().filter_map(|slot| fact.columns.get(slot));
    columns.any(|c| {
        arena
            .tensor(c.data_type)
            .is_some_and(|t| t.dtype.is_float())
    })
}
