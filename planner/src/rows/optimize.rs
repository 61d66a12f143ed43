//! Exact rewrites of the row plan: same rows, same bytes, same order, same surfaced errors.
//!
//! | rewrite | condition | why it is exact |
//! |---|---|---|
//! | merge projections | no computed column is read twice | substitution; draws follow the row, not the place |
//! | push filters down | the predicate reads columns that exist below | errors are values: a dropped row's errors never surface |
//! | prune columns | the column is not needed above | an error of a slot that nobody needs does not surface |
//! | prune stored rows | conjunct repeated by a filter above the scan | only rows that the filter drops are left out |
//! | fuse image calls | nested image calls | the program runs the same kernels in the same order |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use forebay_udfs::row::ROW_COLUMN;

use super::{NamedExpr, RowOp, RowPlan, reads, slot};

/// Applies every rewrite of this module.
pub fn optimize(plan: RowPlan) -> Result<RowPlan> {
    let outputs = names(&plan);
    let plan = plan.rewrite(&mut merge_projections)?;
    let plan = push_filters(plan, Vec::new())?;
    let plan = plan.rewrite(&mut merge_projections)?;
    let plan = exactly(
        prune_columns(plan, &outputs.iter().cloned().collect())?,
        &outputs,
    )?;
    let plan = plan.rewrite(&mut merge_projections)?;
    plan.rewrite(&mut |node| fuse_images(prune_rows(node)))
}

fn names(plan: &RowPlan) -> Vec<String> {
    plan.schema
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect()
}

/// Replaces slots by what `values` says of them.
fn substitute(expr: &Expr, values: &BTreeMap<String, Expr>) -> Result<Expr> {
    let replaced = expr.clone().transform_up(|e| match &e {
        Expr::Column(c) => match values.get(&c.name) {
            Some(value) => Ok(Transformed::yes(value.clone())),
            None => Ok(Transformed::no(e)),
        },
        _ => Ok(Transformed::no(e)),
    })?;
    Ok(replaced.data)
}

/// How often each slot is read.
fn count_reads<'a>(exprs: impl Iterator<Item = &'a Expr>) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for expr in exprs {
        expr.apply(|e| {
            if let Expr::Column(c) = e {
                *counts.entry(c.name.clone()).or_default() += 1;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(counts)
}

fn is_trivial(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(_) | Expr::Literal(..))
}

/// Project over project becomes one, unless that would compute a column twice.
fn merge_projections(mut node: RowPlan) -> Result<RowPlan> {
    let RowOp::Project { exprs } = &node.op else {
        return Ok(node);
    };
    let RowOp::Project { exprs: below } = &node.inputs[0].op else {
        return Ok(node);
    };
    let counts = count_reads(exprs.iter().map(|e| &e.expr))?;
    let repeated =
        |e: &NamedExpr| !is_trivial(&e.expr) && counts.get(&e.name).copied().unwrap_or(0) > 1;
    if below.iter().any(repeated) {
        return Ok(node);
    }
    let values = below
        .iter()
        .map(|e| (e.name.clone(), e.expr.clone()))
        .collect();
    let merged = exprs
        .iter()
        .map(|e| {
            Ok(NamedExpr {
                name: e.name.clone(),
                expr: substitute(&e.expr, &values)?,
            })
        })
        .collect::<Result<_>>()?;
    let input = node.inputs.swap_remove(0).inputs.swap_remove(0);
    RowPlan::project(input, merged)
}

/// Moves `conjuncts`, which are over `plan`'s output, as far down as they go.
fn push_filters(mut plan: RowPlan, conjuncts: Vec<Expr>) -> Result<RowPlan> {
    match &plan.op {
        RowOp::Filter { conjuncts: own } => {
            let all = own.iter().cloned().chain(conjuncts).collect();
            push_filters(plan.inputs.swap_remove(0), all)
        }
        RowOp::Project { exprs } => {
            let values: BTreeMap<_, _> = exprs
                .iter()
                .filter(|e| matches!(e.expr, Expr::Column(_)))
                .map(|e| (e.name.clone(), e.expr.clone()))
                .collect();
            let known = |e: &Expr| reads(e).iter().all(|name| values.contains_key(name));
            let (down, stay): (Vec<_>, Vec<_>) = conjuncts.into_iter().partition(known);
            let down = down
                .iter()
                .map(|e| substitute(e, &values))
                .collect::<Result<_>>()?;
            plan.inputs = vec![push_filters(plan.inputs.swap_remove(0), down)?];
            Ok(RowPlan::filter(plan, stay))
        }
        RowOp::Union => {
            let outputs = names(&plan);
            let inputs = std::mem::take(&mut plan.inputs);
            plan.inputs = inputs
                .into_iter()
                .map(|input| {
                    let values = rename(&outputs, &names(&input));
                    let down = conjuncts.iter().map(|e| substitute(e, &values));
                    let down = down.collect::<Result<_>>()?;
                    push_filters(input, down)
                })
                .collect::<Result<_>>()?;
            Ok(plan)
        }
        RowOp::Unnest { columns, lists, .. } => {
            // A draw above is a draw of the child row, so a random predicate stays above.
            let below = names(&plan.inputs[0]);
            let values = plan.schema.fields().iter().zip(columns);
            let values: BTreeMap<_, _> = values
                .filter(|(_, from)| !lists.contains(from))
                .map(|(field, &from)| (field.name().clone(), slot(&below[from])))
                .collect();
            let movable = |e: &Expr| !draws(e) && reads(e).iter().all(|n| values.contains_key(n));
            let (down, stay): (Vec<_>, Vec<_>) = conjuncts.into_iter().partition(movable);
            let down = down
                .iter()
                .map(|e| substitute(e, &values))
                .collect::<Result<_>>()?;
            plan.inputs = vec![push_filters(plan.inputs.swap_remove(0), down)?];
            Ok(RowPlan::filter(plan, stay))
        }
        RowOp::Lookup { .. } => {
            let probe = names(&plan.inputs[0]);
            let values = rename(&names(&plan)[..probe.len()], &probe);
            let known = |e: &Expr| reads(e).iter().all(|name| values.contains_key(name));
            let (down, stay): (Vec<_>, Vec<_>) = conjuncts.into_iter().partition(known);
            let down = down
                .iter()
                .map(|e| substitute(e, &values))
                .collect::<Result<_>>()?;
            let build = push_filters(plan.inputs.swap_remove(1), Vec::new())?;
            let probe = push_filters(plan.inputs.swap_remove(0), down)?;
            plan.inputs = vec![probe, build];
            Ok(RowPlan::filter(plan, stay))
        }
        RowOp::Limit { .. } => {
            plan.inputs = vec![push_filters(plan.inputs.swap_remove(0), Vec::new())?];
            Ok(RowPlan::filter(plan, conjuncts))
        }
        RowOp::Scan { .. } => Ok(RowPlan::filter(plan, conjuncts)),
    }
}

fn rename(from: &[String], to: &[String]) -> BTreeMap<String, Expr> {
    from.iter().cloned().zip(to.iter().map(slot)).collect()
}

fn draws(expr: &Expr) -> bool {
    expr.column_refs().iter().any(|c| c.name == ROW_COLUMN)
}

/// A projection to exactly these slots, unless `plan` has exactly them.
fn exactly(plan: RowPlan, wanted: &[String]) -> Result<RowPlan> {
    if names(&plan) == wanted {
        return Ok(plan);
    }
    let exprs = wanted
        .iter()
        .map(|n| NamedExpr {
            name: n.clone(),
            expr: slot(n),
        })
        .collect();
    RowPlan::project(plan, exprs)
}

/// Drops the columns that neither `needed` nor an operator below asks for. The output has at least
/// the needed columns.
pub(super) fn prune_columns(mut plan: RowPlan, needed: &BTreeSet<String>) -> Result<RowPlan> {
    let kept = |field: &Field| needed.contains(field.name());
    match &plan.op {
        RowOp::Scan {
            occurrence,
            name,
            source,
            projection,
            prune,
        } => {
            let pairs = projection
                .iter()
                .zip(plan.schema.fields())
                .filter(|(_, f)| kept(f));
            let projection: Vec<usize> = pairs.map(|(&index, _)| index).collect();
            let op = RowOp::Scan {
                occurrence: *occurrence,
                name: name.clone(),
                source: Arc::clone(source),
                projection,
                prune: prune.clone(),
            };
            let fields = plan
                .schema
                .fields()
                .iter()
                .filter(|f| kept(f))
                .map(Arc::clone);
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            Ok(RowPlan {
                op,
                inputs: Vec::new(),
                schema,
            })
        }
        RowOp::Project { exprs } => {
            let exprs: Vec<_> = exprs
                .iter()
                .filter(|e| needed.contains(&e.name))
                .cloned()
                .collect();
            let below = exprs.iter().flat_map(|e| reads(&e.expr)).collect();
            RowPlan::project(prune_columns(plan.inputs.swap_remove(0), &below)?, exprs)
        }
        RowOp::Filter { conjuncts } => {
            let below = needed
                .iter()
                .cloned()
                .chain(conjuncts.iter().flat_map(reads))
                .collect();
            let conjuncts = conjuncts.clone();
            Ok(RowPlan::filter(
                prune_columns(plan.inputs.swap_remove(0), &below)?,
                conjuncts,
            ))
        }
        RowOp::Limit { .. } => {
            plan.inputs = vec![prune_columns(plan.inputs.swap_remove(0), needed)?];
            plan.schema = Arc::clone(&plan.inputs[0].schema);
            Ok(plan)
        }
        RowOp::Union => {
            let keep: Vec<usize> = indices(&plan.schema, kept);
            plan.inputs = std::mem::take(&mut plan.inputs)
                .into_iter()
                .map(|input| {
                    let wanted: Vec<_> = keep.iter().map(|&i| names(&input)[i].clone()).collect();
                    exactly(
                        prune_columns(input, &wanted.iter().cloned().collect())?,
                        &wanted,
                    )
                })
                .collect::<Result<_>>()?;
            plan.schema = Arc::new(plan.schema.project(&keep)?);
            Ok(plan)
        }
        RowOp::Unnest {
            columns,
            lists,
            preserve_nulls,
        } => {
            let below = names(&plan.inputs[0]);
            let keep: Vec<usize> = indices(&plan.schema, kept);
            let from: BTreeSet<usize> = keep
                .iter()
                .map(|&i| columns[i])
                .chain(lists.iter().copied())
                .collect();
            let wanted: Vec<_> = from.iter().map(|&i| below[i].clone()).collect();
            let place: BTreeMap<usize, usize> =
                from.iter().enumerate().map(|(to, &f)| (f, to)).collect();
            let op = RowOp::Unnest {
                columns: keep.iter().map(|&i| place[&columns[i]]).collect(),
                lists: lists.iter().map(|i| place[i]).collect(),
                preserve_nulls: *preserve_nulls,
            };
            let schema = Arc::new(plan.schema.project(&keep)?);
            let input = prune_columns(
                plan.inputs.swap_remove(0),
                &wanted.iter().cloned().collect(),
            )?;
            Ok(RowPlan {
                op,
                inputs: vec![exactly(input, &wanted)?],
                schema,
            })
        }
        RowOp::Lookup { on, keep_unmatched } => {
            let split = plan.inputs[0].schema.fields().len();
            let mut on_reads = [BTreeSet::new(), BTreeSet::new()];
            for (l, r) in on {
                on_reads[0].extend(reads(l));
                on_reads[1].extend(reads(r));
            }
            let op = RowOp::Lookup {
                on: on.clone(),
                keep_unmatched: *keep_unmatched,
            };
            let mut keep = Vec::new();
            let mut inputs = Vec::new();
            for (side, input) in std::mem::take(&mut plan.inputs).into_iter().enumerate() {
                let offset = side * split;
                let all = names(&input);
                let wanted = |i: &usize| {
                    kept(plan.schema.field(offset + i)) || on_reads[side].contains(&all[*i])
                };
                let chosen: Vec<usize> = (0..all.len()).filter(wanted).collect();
                keep.extend(chosen.iter().map(|i| offset + i));
                let wanted: Vec<_> = chosen.iter().map(|&i| all[i].clone()).collect();
                let pruned = prune_columns(input, &wanted.iter().cloned().collect())?;
                inputs.push(exactly(pruned, &wanted)?);
            }
            Ok(RowPlan {
                op,
                inputs,
                schema: Arc::new(plan.schema.project(&keep)?),
            })
        }
    }
}

fn indices(schema: &Schema, keep: impl Fn(&Field) -> bool) -> Vec<usize> {
    let fields = schema.fields().iter().enumerate();
    fields
        .filter(|(_, field)| keep(field))
        .map(|(index, _)| index)
        .collect()
}

/// Tells a scan which conjuncts the filter above it has, so that a reader may skip rows by its
/// statistics.
fn prune_rows(mut node: RowPlan) -> RowPlan {
    let RowOp::Filter { conjuncts } = &node.op else {
        return node;
    };
    let known: Vec<Expr> = conjuncts
        .iter()
        .filter(|e| !draws(e) && !calls_ours(e))
        .cloned()
        .collect();
    if let RowOp::Scan { prune, .. } = &mut node.inputs[0].op {
        *prune = known;
    }
    node
}

fn calls_ours(expr: &Expr) -> bool {
    expr.exists(|e| {
        Ok(matches!(e, Expr::ScalarFunction(f) if forebay_udfs::facts_of(f.func.name()).is_some()))
    })
    .unwrap_or(true)
}

/// Turns nested image calls into image programs.
fn fuse_images(mut node: RowPlan) -> Result<RowPlan> {
    match &mut node.op {
        RowOp::Project { exprs } => {
            for named in exprs.iter_mut() {
                named.expr = forebay_udfs::fuse(named.expr.clone())?.data;
            }
        }
        RowOp::Filter { conjuncts } => {
            for conjunct in conjuncts.iter_mut() {
                *conjunct = forebay_udfs::fuse(conjunct.clone())?.data;
            }
        }
        _ => {}
    }
    Ok(node)
}
