//! From a tree of operators back to a row plan.
//!
//! Shuffle, take and batch stay clauses: the engine orders, takes and batches keys, and computes a row
//! only when it is wanted, so a row function above them in the term is part of the same fragment.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{Result, internal_err};

use super::arena::{Arena, ParamId};
use super::slots::{Slot, SlotSet};
use super::spec::OpKind;
use super::tree::Tree;
use crate::rows::{NamedExpr, RowOp, RowPlan, slot as column};

/// The row plan of a tree, with these output columns.
pub fn raise(arena: &Arena, tree: &Tree, outputs: &[(String, Slot)]) -> Result<RowPlan> {
    let wanted = outputs.iter().map(|&(_, slot)| slot).collect();
    let plan = plan(arena, tree, &wanted)?;
    let named = outputs.iter().map(|(name, slot)| NamedExpr {
        name: name.clone(),
        expr: column(arena.name(*slot)),
    });
    RowPlan::project(plan, named.collect())
}

/// What the columns of unions, mixes, lookups and unnests are.
fn all_nullable(fields: Vec<Field>) -> SchemaRef {
    let fields = fields.into_iter().map(|field| field.with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The row plan of a tree, of whose slots something above needs `wanted`.
fn plan(arena: &Arena, tree: &Tree, wanted: &SlotSet) -> Result<RowPlan> {
    let names = || -> Vec<String> { wanted.iter().map(|s| arena.name(s).to_owned()).collect() };
    match tree {
        Tree::Scan(scan) => {
            let spec = arena.scan(*scan);
            let schema = spec.source.schema();
            let fields: Vec<Field> = spec
                .columns
                .iter()
                .map(|&(index, _)| schema.field(index).clone())
                .collect();
            let renamed = spec
                .columns
                .iter()
                .zip(&fields)
                .map(|(&(_, slot), field)| NamedExpr {
                    name: arena.name(slot).to_owned(),
                    expr: column(field.name()),
                });
            let renamed: Vec<NamedExpr> = renamed.collect();
            let scan = RowPlan {
                op: RowOp::Scan {
                    occurrence: spec.occurrence,
                    name: spec.name.clone(),
                    source: Arc::clone(&spec.source),
                    projection: spec.columns.iter().map(|&(index, _)| index).collect(),
                    prune: Vec::new(),
                },
                inputs: Vec::new(),
                schema: Arc::new(Schema::new(fields)),
            };
            RowPlan::project(scan, renamed)
        }
        Tree::Op(param, _) if arena.spec(*param).kind.is_row() => rows(arena, tree, wanted),
        Tree::Op(param, input) => {
            let below = arena.needed(*param, wanted);
            op(arena, *param, plan(arena, input, &below)?)
        }
        Tree::Cache(input) => {
            // What is kept is what is needed, and nothing else.
            let input = plan(arena, input, wanted)?.exactly(&names())?;
            Ok(RowPlan {
                schema: Arc::clone(&input.schema),
                op: RowOp::Cache,
                inputs: vec![input],
            })
        }
        Tree::Cat(inputs) => {
            let [a, b] = inputs.each_ref();
            let a = plan(arena, a, wanted)?.exactly(&names())?;
            let b = plan(arena, b, wanted)?.exactly(&names())?;
            let fields = a.schema.fields().iter().map(|f| f.as_ref().clone());
            let schema = all_nullable(fields.collect());
            // A union of a union is one union.
            let mut inputs = Vec::new();
            for input in [a, b] {
                match input.op {
                    RowOp::Union => inputs.extend(input.inputs),
                    _ => inputs.push(input),
                }
            }
            Ok(RowPlan {
                op: RowOp::Union,
                inputs,
                schema,
            })
        }
        Tree::Mix(arms) => {
            let arms = arms
                .iter()
                .map(|arm| plan(arena, arm, wanted)?.exactly(&names()));
            let inputs = arms.collect::<Result<Vec<_>>>()?;
            let (Some(mix), Some(first)) = (&arena.mix, inputs.first()) else {
                return internal_err!("a mix without weights or arms");
            };
            let fields = first.schema.fields().iter().map(|f| f.as_ref().clone());
            Ok(RowPlan {
                op: RowOp::Mix(mix.clone()),
                schema: all_nullable(fields.collect()),
                inputs,
            })
        }
        Tree::Zip(..) => internal_err!("zip has no row plan"),
    }
}

/// Row operators above each other. Those of which none reads or writes what another one writes are one
/// projection, so that columns are passed on once for all of them.
fn rows(arena: &Arena, tree: &Tree, wanted: &SlotSet) -> Result<RowPlan> {
    let (mut above, mut at, mut wanted) = (Vec::new(), tree, wanted.clone());
    while let Tree::Op(param, input) = at
        && arena.spec(*param).kind.is_row()
    {
        above.push(*param);
        wanted = arena.needed(*param, &wanted);
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

/// A projection that computes the slots of row operators, which are independent of each other, behind the
/// columns of its input.
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
            let below = input.names();
            let mut fields = Vec::with_capacity(below.len());
            let mut positions = std::collections::BTreeSet::new();
            for (position, name) in below.iter().enumerate() {
                let field = input.schema.field(position);
                let list = lists.iter().find(|(list, _)| arena.name(*list) == name);
                fields.push(match list {
                    None => field.clone(),
                    Some((_, element)) => {
                        positions.insert(position);
                        let item = match field.data_type() {
                            arrow::datatypes::DataType::List(item)
                            | arrow::datatypes::DataType::LargeList(item)
                            | arrow::datatypes::DataType::FixedSizeList(item, _) => item,
                            other => return internal_err!("unnest of {other}"),
                        };
                        let item = item.as_ref().clone();
                        item.with_name(arena.name(*element))
                    }
                });
            }
            Ok(RowPlan {
                op: RowOp::Unnest {
                    columns: (0..below.len()).collect(),
                    lists: positions,
                    preserve_nulls: *preserve_nulls,
                },
                inputs: vec![input],
                schema: all_nullable(fields),
            })
        }
        OpKind::Lookup {
            build,
            on,
            columns,
            keep_unmatched,
        } => {
            let build = arena.build(*build).clone();
            let mut fields: Vec<Field> = input
                .schema
                .fields()
                .iter()
                .map(|f| f.as_ref().clone())
                .collect();
            for (field, (_, slot)) in build.schema.fields().iter().zip(columns) {
                fields.push(field.as_ref().clone().with_name(arena.name(*slot)));
            }
            Ok(RowPlan {
                op: RowOp::Lookup {
                    on: on.clone(),
                    keep_unmatched: *keep_unmatched,
                },
                inputs: vec![input, build],
                schema: all_nullable(fields),
            })
        }
        OpKind::Limit { skip, fetch } => {
            let schema = Arc::clone(&input.schema);
            Ok(RowPlan {
                op: RowOp::Limit {
                    skip: *skip,
                    fetch: *fetch,
                },
                inputs: vec![input],
                schema,
            })
        }
        OpKind::Shuffle { .. } | OpKind::Take { .. } | OpKind::Batch { .. } => Ok(input),
    }
}
