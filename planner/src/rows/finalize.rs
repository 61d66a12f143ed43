//! Final rewrites of the chosen row plan, applied without comparing costs. The rewrites change
//! neither rows, bytes, order nor reported errors.
//!
//! | rewrite | condition | why it is exact |
//! |---|---|---|
//! | drop projections to the same columns | the projection has exactly its input's columns | nothing is computed |
//! | merge projections | no computed column is read twice; a column that can raise an error is only passed on, or is the image of an image function | expressions are substituted; draws depend on the row's key, not on the operator |
//! | move filters below renames | the projection only renames and drops columns | column names are substituted |
//! | prune columns | no operator above needs the column | an error in an unneeded column is never reported |
//! | prune stored rows | the conjunct stays in the filter directly above the scan | only rows that the filter drops are skipped |
//! | fuse image calls | the image calls are nested | the fused program runs the same kernels in the same order |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use forebay_udfs::facts::Algebra;

use super::columns::ColumnIndex;
use super::expr::{draws, reads};
use super::fallible::fallible;
use super::op::{Columns, NamedExpr, Needed, RowOp};
use super::plan::RowPlan;

/// Name of the rewrite that lets a scan skip rows that the filter directly above the scan drops.
pub const FILTER_INTO_SCAN: &str = "filter-into-scan";
/// Name of the rewrite that replaces nested image calls by one image program.
pub const FUSE_IMAGES: &str = "fuse-images";

/// Applies every rewrite of this module to `plan`. A rewrite that has a name is left out if
/// `disabled` is true for that name.
pub fn finalize(plan: RowPlan, disabled: impl Fn(&str) -> bool) -> Result<RowPlan> {
    let plan = plan.rewrite(&mut merge_projections)?;
    let plan = plan.rewrite(&mut filters_below_renames)?;
    let plan = plan.rewrite(&mut merge_projections)?;
    let plan = needed_columns(plan)?.rewrite(&mut merge_projections)?;
    let mut plan = plan.rewrite(&mut |node| Ok(without_identity(node)))?;
    if !disabled(FILTER_INTO_SCAN) {
        plan = plan.rewrite(&mut |node| Ok(prune_rows(node)))?;
    }
    if disabled(FUSE_IMAGES) {
        Ok(plan)
    } else {
        plan.rewrite(&mut fuse_images)
    }
}

/// Removes the columns that do not contribute to the output, even from a plan that is not
/// optimised: a damaged stored column must not end the run under one plan and go unnoticed under
/// another plan.
pub fn needed_columns(plan: RowPlan) -> Result<RowPlan> {
    let outputs = plan.names();
    let needed = outputs.iter().cloned().collect();
    prune_columns(plan, &needed)?.exactly(&outputs)
}

/// Replaces each slot in `expr` that `values` contains by its expression in `values`.
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

/// Counts the occurrences of each slot in `exprs`.
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

/// True if evaluating `expr` always reports the error of a column in `fallible` that `expr` reads.
/// Only columns and image calls guarantee this: CASE and AND may skip operands, and in other
/// expressions, another operand may raise an error first.
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

/// Merges the projection `node` with a projection directly below it, unless a column would then be
/// computed twice or another error might be reported.
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

/// Removes the projection `node` if its output is exactly the columns of its input.
fn without_identity(mut node: RowPlan) -> RowPlan {
    let RowOp::Project { exprs } = &node.op else {
        return node;
    };
    let over = node.inputs[0].schema.fields().iter();
    let same = |e: &NamedExpr, name: &String| {
        e.name == *name && matches!(&e.expr, Expr::Column(c) if c.name == *name)
    };
    let pairs = exprs.iter().zip(over.map(|f| f.name()));
    if exprs.len() == node.inputs[0].schema.fields().len()
        && pairs.into_iter().all(|(e, n)| same(e, n))
    {
        node.inputs.swap_remove(0)
    } else {
        node
    }
}

/// Moves the filter `node` below a projection that only renames and drops columns.
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

/// Removes the columns of `plan` that are not in `wanted` and that no operator needs. The output
/// has at least the columns in `wanted`.
pub(super) fn prune_columns(plan: RowPlan, wanted: &BTreeSet<String>) -> Result<RowPlan> {
    let schemas: Vec<_> = plan.inputs.iter().map(|input| &input.schema).collect();
    let Needed {
        op,
        columns,
        inputs,
    } = plan.op.needed(&plan.schema, &schemas, wanted);
    let inputs = plan.inputs.into_iter().zip(inputs);
    let inputs = inputs.map(|(input, columns)| match columns {
        Columns::AtLeast(columns) => prune_columns(input, &columns),
        Columns::Exactly(columns) => {
            prune_columns(input, &columns.iter().cloned().collect())?.exactly(&columns)
        }
    });
    let mut inputs = inputs.collect::<Result<Vec<_>>>()?;
    match op {
        RowOp::Filter { conjuncts } => Ok(RowPlan::filter(inputs.swap_remove(0), conjuncts)),
        // A limit has all columns of its input, which may have more than the columns in `columns`.
        RowOp::Limit { .. } => RowPlan::over(op, inputs),
        _ => {
            let fields = columns
                .iter()
                .map(|&i| Arc::clone(&plan.schema.fields()[i]));
            Ok(RowPlan {
                op,
                inputs,
                schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            })
        }
    }
}

/// Copies the conjuncts of the filter `node` to a scan directly below it. The scan's reader may
/// then skip rows by the statistics of its files. A filter above a MIX is not copied to the scans
/// of the arms, since arms are drawn before the filter is applied.
fn prune_rows(mut node: RowPlan) -> RowPlan {
    let RowOp::Filter { conjuncts } = &node.op else {
        return node;
    };
    let known: Vec<Expr> = conjuncts
        .iter()
        .filter(|e| is_for_scans(e))
        .cloned()
        .collect();
    if let RowOp::Scan { prune, .. } = &mut node.inputs[0].op {
        *prune = known;
    }
    node
}

/// Returns true if a scan may apply the conjunct of a filter directly above it.
pub(crate) fn is_for_scans(conjunct: &Expr) -> bool {
    !draws(conjunct) && !calls_ours(conjunct)
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

/// Replaces nested image calls in `node` by image programs.
fn fuse_images(mut node: RowPlan) -> Result<RowPlan> {
    // The key expressions of a lookup are evaluated separately, and are not fused.
    if !matches!(node.op, RowOp::Lookup { .. }) {
        let fuse = |expr| Ok(forebay_udfs::fuse(expr)?.data);
        node.op = node.op.map_exprs(&mut { fuse })?;
    }
    Ok(node)
}
