//! What is left to do on a chosen row plan, whatever it costs: same rows, same bytes, same order, same
//! surfaced errors.
//!
//! | rewrite | condition | why it is exact |
//! |---|---|---|
//! | drop projections to the same columns | | nothing is computed |
//! | merge projections | no computed column is read twice, and one that fails is all that its reader is | substitution; draws follow the row, not the place |
//! | filters below renames | the projection computes nothing | substitution |
//! | prune columns | the column is not needed above | an error of a slot that nobody needs does not surface |
//! | prune stored rows | conjunct repeated by a filter above the scan | only rows that the filter drops are left out |
//! | fuse image calls | nested image calls | the program runs the same kernels in the same order |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use forebay_udfs::facts::Algebra;

use super::columns::ColumnIndex;
use super::{NamedExpr, RowOp, RowPlan, draws, reads};
use crate::optimizer::spec::fallible;

/// A scan may leave out rows that the filter above it drops.
pub const FILTER_INTO_SCAN: &str = "filter-into-scan";
/// Nested image functions run as one program.
pub const FUSE_IMAGES: &str = "fuse-images";

/// Applies every rewrite of this module, but for the named ones that are `disabled`.
pub fn tidy(plan: RowPlan, disabled: impl Fn(&str) -> bool) -> Result<RowPlan> {
    let plan = plan.rewrite(&mut merge_projections)?;
    let plan = plan.rewrite(&mut filters_below_renames)?;
    let plan = plan.rewrite(&mut merge_projections)?;
    let plan = needed_columns(plan)?.rewrite(&mut merge_projections)?;
    let mut plan = plan.rewrite(&mut |node| Ok(without_identity(node)))?;
    if !disabled(FILTER_INTO_SCAN) {
        plan = plan.rewrite(&mut |node| Ok(prune_rows(node)))?;
    }
    match disabled(FUSE_IMAGES) {
        true => Ok(plan),
        false => plan.rewrite(&mut fuse_images),
    }
}

/// The plan without the columns that nobody needs. No plan runs with them: damage to a stored column would end the run
/// under one plan, and be unseen under another.
pub fn needed_columns(plan: RowPlan) -> Result<RowPlan> {
    let outputs = plan.names();
    let needed = outputs.iter().cloned().collect();
    prune_columns(plan, &needed)?.exactly(&outputs)
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

/// Whether a failure of one of these columns is the failure of the expression over them, and the first
/// one. CASE, AND and their like need not evaluate every operand, and an operand before may fail too.
fn passes_failures(expr: &Expr, fallible: &BTreeSet<String>) -> bool {
    let untouched = |e: &Expr| reads(e).is_disjoint(fallible);
    match expr {
        Expr::Column(_) => true,
        Expr::ScalarFunction(call) if calls_image(call.name()) => match call.args.split_first() {
            Some((image, rest)) => passes_failures(image, fallible) && rest.iter().all(untouched),
            None => true,
        },
        other => untouched(other),
    }
}

fn calls_image(function: &str) -> bool {
    forebay_udfs::facts_of(function).is_some_and(|facts| facts.algebra != Algebra::Opaque)
}

/// Project over project becomes one, unless that would compute a column twice or fail otherwise.
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
    let columns = ColumnIndex::of(&node.inputs[0].inputs[0].schema);
    let mut can_fail = BTreeSet::new();
    for e in below.iter().filter(|e| !is_trivial(&e.expr)) {
        if fallible(&e.expr, &columns.read_by(&e.expr)?) {
            can_fail.insert(e.name.clone());
        }
    }
    if !exprs.iter().all(|e| passes_failures(&e.expr, &can_fail)) {
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

/// A projection to exactly the columns of its input is none.
fn without_identity(mut node: RowPlan) -> RowPlan {
    let RowOp::Project { exprs } = &node.op else {
        return node;
    };
    let over = node.inputs[0].schema.fields().iter();
    let same = |e: &NamedExpr, name: &String| {
        e.name == *name && matches!(&e.expr, Expr::Column(c) if c.name == *name)
    };
    let pairs = exprs.iter().zip(over.map(|f| f.name()));
    match exprs.len() == node.inputs[0].schema.fields().len()
        && pairs.into_iter().all(|(e, n)| same(e, n))
    {
        true => node.inputs.swap_remove(0),
        false => node,
    }
}

/// A filter goes below a projection that only renames and drops columns.
fn filters_below_renames(mut node: RowPlan) -> Result<RowPlan> {
    let RowOp::Filter { conjuncts } = &node.op else {
        return Ok(node);
    };
    let RowOp::Project { exprs } = &node.inputs[0].op else {
        return Ok(node);
    };
    if !exprs.iter().all(|e| matches!(e.expr, Expr::Column(_))) {
        return Ok(node);
    }
    let values = exprs
        .iter()
        .map(|e| (e.name.clone(), e.expr.clone()))
        .collect();
    let below = conjuncts
        .iter()
        .map(|e| substitute(e, &values))
        .collect::<Result<_>>()?;
    let mut project = node.inputs.swap_remove(0);
    let input = RowPlan::filter(project.inputs.swap_remove(0), below);
    project.inputs = vec![filters_below_renames(input)?];
    Ok(project)
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
        // What is kept does not depend on what is needed now, lest it be kept twice.
        RowOp::Cache => {
            let all = plan.names();
            let input = plan.inputs.swap_remove(0);
            plan.inputs =
                vec![prune_columns(input, &all.iter().cloned().collect())?.exactly(&all)?];
            Ok(plan)
        }
        RowOp::Limit { .. } => {
            plan.inputs = vec![prune_columns(plan.inputs.swap_remove(0), needed)?];
            plan.schema = Arc::clone(&plan.inputs[0].schema);
            Ok(plan)
        }
        RowOp::Union | RowOp::Mix(_) => {
            let keep: Vec<usize> = indices(&plan.schema, kept);
            plan.inputs = std::mem::take(&mut plan.inputs)
                .into_iter()
                .map(|input| {
                    let wanted: Vec<_> = keep
                        .iter()
                        .map(|&i| input.schema.field(i).name().clone())
                        .collect();
                    prune_columns(input, &wanted.iter().cloned().collect())?.exactly(&wanted)
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
            let below = plan.inputs[0].names();
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
                inputs: vec![input.exactly(&wanted)?],
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
                let all = input.names();
                let wanted = |i: &usize| {
                    kept(plan.schema.field(offset + i)) || on_reads[side].contains(&all[*i])
                };
                let chosen: Vec<usize> = (0..all.len()).filter(wanted).collect();
                keep.extend(chosen.iter().map(|i| offset + i));
                let wanted: Vec<_> = chosen.iter().map(|&i| all[i].clone()).collect();
                let pruned = prune_columns(input, &wanted.iter().cloned().collect())?;
                inputs.push(pruned.exactly(&wanted)?);
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

/// Tells a scan which conjuncts the filter right above it has, so that a reader may skip rows by its
/// statistics. Never those of a filter above a MIX: its arms are drawn for rows before that filter.
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
        Ok(match e {
            Expr::ScalarFunction(call) => {
                forebay_udfs::facts_of(call.func.name()).is_some()
                    || forebay_udfs::declared(&call.func).is_some()
            }
            _ => false,
        })
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
