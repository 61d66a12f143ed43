//! Raises a tree of operators to a row plan.
//!
//! Shuffles, takes and batches of the tree are left out of the row plan: the engine applies these
//! clauses to row keys, and then computes only the rows that each batch needs. So a row function
//! above a shuffle in the tree stands directly above the shuffle's input in the row plan.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::common::{Result, internal_err};

use super::arena::Arena;
use super::ids::ParamId;
use super::slots::{Slot, SlotSet};
use super::spec::OpKind;
use super::tree::OperatorTree;
use crate::rows::{NamedExpr, RowOp, RowPlan, slot as column};

/// Raises `tree` to a row plan with the output columns `outputs`.
pub(crate) fn raise(
    arena: &Arena,
    tree: &OperatorTree,
    outputs: &[(String, Slot)],
) -> Result<RowPlan> {
    let wanted = outputs.iter().map(|&(_, slot)| slot).collect();
    let plan = plan(arena, tree, &wanted)?;
    let named = outputs.iter().map(|(name, slot)| NamedExpr {
        name: name.clone(),
        expr: column(arena.name(*slot)),
    });
    RowPlan::project(plan, named.collect())
}

/// Raises `tree` to a row plan that yields at least the slots in `wanted`.
fn plan(arena: &Arena, tree: &OperatorTree, wanted: &SlotSet) -> Result<RowPlan> {
    let names = || -> Vec<String> { wanted.iter().map(|s| arena.name(s).to_owned()).collect() };
    match tree {
        OperatorTree::Scan(scan) => {
            let spec = arena.scan(*scan);
            let schema = spec.source.schema();
            let renamed = spec.columns.iter().map(|&(index, slot)| NamedExpr {
                name: arena.name(slot).to_owned(),
                expr: column(schema.field(index).name()),
            });
            let op = RowOp::Scan {
                occurrence: spec.occurrence,
                name: spec.name.clone(),
                source: Arc::clone(&spec.source),
                projection: spec.columns.iter().map(|&(index, _)| index).collect(),
                prune: Vec::new(),
            };
            RowPlan::project(RowPlan::over(op, Vec::new())?, renamed.collect())
        }
        OperatorTree::Op(param, _) if arena.spec(*param).kind.is_row() => rows(arena, tree, wanted),
        OperatorTree::Op(param, input) => {
            let below = arena.spec(*param).needed(wanted);
            op(arena, *param, plan(arena, input, &below)?)
        }
        OperatorTree::Cache(input) => {
            // Only the columns that the operators above need are cached.
            let input = plan(arena, input, wanted)?.exactly(&names())?;
            RowPlan::over(RowOp::Cache, vec![input])
        }
        OperatorTree::Cat(inputs) => {
            let [a, b] = inputs.each_ref();
            let a = plan(arena, a, wanted)?.exactly(&names())?;
            let b = plan(arena, b, wanted)?.exactly(&names())?;
            // A union directly below this union is merged into this union.
            let mut inputs = Vec::new();
            for input in [a, b] {
                match input.op {
                    RowOp::Union => inputs.extend(input.inputs),
                    _ => inputs.push(input),
                }
            }
            RowPlan::over(RowOp::Union, inputs)
        }
        OperatorTree::Mix(arms) => {
            let arms = arms
                .iter()
                .map(|arm| plan(arena, arm, wanted)?.exactly(&names()));
            let inputs = arms.collect::<Result<Vec<_>>>()?;
            let Some(mix) = &arena.mix else {
                return internal_err!("a mix without weights or arms");
            };
            RowPlan::over(RowOp::Mix(mix.clone()), inputs)
        }
    }
}

/// Raises the row operators at the top of `tree`. Operators that are independent of each other
/// become one projection, so that unchanged columns are passed on only once.
fn rows(arena: &Arena, tree: &OperatorTree, wanted: &SlotSet) -> Result<RowPlan> {
    let (mut above, mut at, mut wanted) = (Vec::new(), tree, wanted.clone());
    while let OperatorTree::Op(param, input) = at
        && arena.spec(*param).kind.is_row()
    {
        above.push(*param);
        wanted = arena.spec(*param).needed(&wanted);
        at = input;
    }
    let mut raised = plan(arena, at, &wanted)?;
    let (mut group, mut written) = (Vec::new(), SlotSet::default());
    for param in above.into_iter().rev() {
        let spec = arena.spec(param);
        if !spec.reads.is_disjoint(&written) || !spec.writes.is_disjoint(&written) {
            raised = project(arena, &group, raised)?;
            group.clear();
            written = SlotSet::default();
        }
        group.push(param);
        written.extend(&spec.writes);
    }
    project(arena, &group, raised)
}

/// A projection that passes on the columns of `input`, and computes the slots of `operators`, which
/// are independent of each other.
fn project(arena: &Arena, operators: &[ParamId], input: RowPlan) -> Result<RowPlan> {
    let mut computed = Vec::new();
    let mut names = HashSet::new();
    for &param in operators {
        for member in arena.each(param) {
            let OpKind::Row { slot, expr } = &arena.spec(member).kind else {
                return internal_err!("{} computes no column", arena.spec(member));
            };
            let name = arena.name(*slot);
            names.insert(name);
            computed.push(NamedExpr {
                name: name.to_owned(),
                expr: expr.as_ref().clone(),
            });
        }
    }
    let passed = input.names().into_iter();
    let passed = passed.filter(|name| !names.contains(name.as_str()));
    let mut exprs: Vec<NamedExpr> = passed
        .map(|name| NamedExpr {
            expr: column(&name),
            name,
        })
        .collect();
    exprs.extend(computed);
    RowPlan::project(input, exprs)
}

fn op(arena: &Arena, param: ParamId, input: RowPlan) -> Result<RowPlan> {
    let spec = arena.spec(param);
    match &spec.kind {
        OpKind::Row { .. } | OpKind::Rows(_) => project(arena, &[param], input),
        OpKind::Filter { .. } | OpKind::Filters(_) => {
            let filters = arena.each(param).into_iter();
            let predicates = filters.filter_map(|filter| match &arena.spec(filter).kind {
                OpKind::Filter { predicate } => Some(predicate.as_ref().clone()),
                _ => None,
            });
            Ok(RowPlan::filter(input, predicates.collect()))
        }
        OpKind::Flatten {
            lists,
            preserve_nulls,
        } => {
            let mut names = input.names();
            let mut positions = BTreeSet::new();
            for (list, element) in lists {
                let list = arena.name(*list);
                if let Some(position) = names.iter().position(|name| name == list) {
                    positions.insert(position);
                    arena.name(*element).clone_into(&mut names[position]);
                }
            }
            let op = RowOp::Unnest {
                columns: (0..names.len()).collect(),
                lists: positions,
                preserve_nulls: *preserve_nulls,
            };
            Ok(RowPlan::over(op, vec![input])?.named(names))
        }
        OpKind::Lookup {
            build,
            on,
            columns,
            keep_unmatched,
        } => {
            let build = arena.build(*build).clone();
            let mut names = input.names();
            names.extend(columns.iter().map(|(_, slot)| arena.name(*slot).to_owned()));
            let op = RowOp::Lookup {
                on: on.clone(),
                keep_unmatched: *keep_unmatched,
            };
            Ok(RowPlan::over(op, vec![input, build])?.named(names))
        }
        OpKind::Limit { skip, fetch } => {
            let op = RowOp::Limit {
                skip: *skip,
                fetch: *fetch,
            };
            RowPlan::over(op, vec![input])
        }
        OpKind::Shuffle { .. } | OpKind::Take { .. } | OpKind::Batch { .. } => Ok(input),
    }
}
