//! What a plan costs: whole picoseconds of one core, so that sums do not depend on their order.

use egg::Id;

use super::arena::{Arena, ParamId};
use super::coefficients::Coefficients;
use super::facts::PlanFact;
use super::lang::Node;
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
            let price = prices.scan(arena.scan(*scan).format.as_deref());
            let row = out
                .live_bytes()
                .saturating_mul(price.ps_per_byte_in.into())
                .saturating_add(price.ps_per_row.into());
            out.rows.number().saturating_mul(row)
        }
        Node::Cat(_) | Node::Zip(_) => moved(out),
        Node::Op([_, _, input]) => {
            let (Some(param), Some(input)) = (param, of(*input)) else {
                return Cost::MAX;
            };
            let spec = arena.spec(param);
            let read = input.bytes(spec.reads.iter());
            let written = out.bytes(spec.writes.iter());
            let compute = u128::from(spec.cost.ps_per_row)
                .saturating_add(read.saturating_mul(spec.cost.ps_per_byte_in.into()))
                .saturating_add(written.saturating_mul(spec.cost.ps_per_byte_out.into()));
            let compute = input.rows.number().saturating_mul(compute);
            match spec.kind {
                OpKind::Row { .. } => compute,
                OpKind::Filter { .. }
                | OpKind::Flatten { .. }
                | OpKind::Lookup { .. }
                | OpKind::Batch { .. } => compute.saturating_add(moved(out)),
                OpKind::Limit { .. } | OpKind::Take { .. } => out.rows.number(),
                // Keys are ordered, before anything is read: no plan is the cheaper for where it stands.
                OpKind::Shuffle { .. } => 0,
            }
        }
    };
    cost.saturating_add(1)
}
