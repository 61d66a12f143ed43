//! Decodes written plans, and checks what lowering guarantees of the planner's own plans.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::logical_expr::{Expr, TableSource};

use super::error::WireError;
use super::form::{NodeForm, OpForm};
use crate::error::PlanError;
use crate::rows::columns::ColumnIndex;
use crate::rows::lower::{MAX_DEPTH, MAX_SCANS};
use crate::rows::mix::Mix;
use crate::rows::{NamedExpr, RowOp, RowPlan, mix_place};

/// Decodes a written plan node by node.
pub(super) struct PlanReader<'a> {
    sources: &'a [Arc<dyn TableSource>],
    exprs: std::vec::IntoIter<Expr>,
    scans: u32,
    /// The nodes that are no other node's input yet, with their depths.
    open: Vec<(RowPlan, usize)>,
}

impl<'a> PlanReader<'a> {
    pub(super) fn new(sources: &'a [Arc<dyn TableSource>], exprs: Vec<Expr>) -> Self {
        Self {
            sources,
            exprs: exprs.into_iter(),
            scans: 0,
            open: Vec::new(),
        }
    }

    /// Returns the plan of the nodes.
    pub(super) fn plan(mut self, nodes: Vec<NodeForm>) -> Result<RowPlan, WireError> {
        for node in nodes {
            self.add(node)?;
        }
        let (plan, other) = (self.open.pop(), self.open.pop());
        let (Some((plan, _)), None, None) = (plan, other, self.exprs.next()) else {
            return Err(WireError::malformed(
                "a plan with too many or too few parts",
            ));
        };
        mix_place::check(&plan).map_err(PlanError::from)?;
        Ok(plan)
    }

    fn add(&mut self, node: NodeForm) -> Result<(), WireError> {
        let Some(first) = self.open.len().checked_sub(node.inputs) else {
            return Err(WireError::malformed("an operator with too few inputs"));
        };
        let (inputs, depths): (Vec<_>, Vec<_>) = self.open.drain(first..).unzip();
        let depth = 1 + depths.into_iter().max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(WireError::malformed("a plan that is too deep"));
        }
        let op = self.op(node.op)?;
        check_inputs(&op, &inputs)?;
        let schemas: Vec<&SchemaRef> = inputs.iter().map(|input| &input.schema).collect();
        let derived = op.output_schema(&schemas).map_err(PlanError::from)?;
        let schema = match node.schema {
            None => derived,
            Some(sent) => agreed(sent, &derived)?,
        };
        check_names(&schema)?;
        let plan = RowPlan { op, inputs, schema };
        self.open.push((plan, depth));
        Ok(())
    }

    fn op(&mut self, form: OpForm) -> Result<RowOp, WireError> {
        Ok(match form {
            OpForm::Scan {
                occurrence,
                name,
                source,
                projection,
            } => {
                // Scans are numbered in the order of the plan.
                if occurrence != self.scans || self.scans >= MAX_SCANS {
                    return Err(WireError::malformed("a scan with a wrong number"));
                }
                self.scans += 1;
                let Some(source) = self.sources.get(source) else {
                    return Err(WireError::malformed("a scan without a source"));
                };
                RowOp::Scan {
                    occurrence,
                    name,
                    source: Arc::clone(source),
                    projection,
                    prune: Vec::new(),
                }
            }
            OpForm::Filter { conjuncts } => RowOp::Filter {
                conjuncts: self.exprs(conjuncts)?,
            },
            OpForm::Project { names } => {
                let exprs = self.exprs(names.len())?.into_iter();
                let named = names.into_iter().zip(exprs);
                RowOp::Project {
                    exprs: named.map(|(name, expr)| NamedExpr { name, expr }).collect(),
                }
            }
            OpForm::Union => RowOp::Union,
            OpForm::Mix { weights, stop } => match Mix::of_parts(weights, stop) {
                Some(mix) => RowOp::Mix(mix),
                None => return Err(WireError::malformed("a MIX with wrong weights")),
            },
            OpForm::Limit { skip, fetch } => RowOp::Limit { skip, fetch },
            OpForm::Unnest {
                columns,
                lists,
                preserve_nulls,
            } => RowOp::Unnest {
                columns,
                lists,
                preserve_nulls,
            },
            OpForm::Lookup {
                pairs,
                keep_unmatched,
            } => {
                let mut on = Vec::new();
                for _ in 0..pairs {
                    on.push((self.expr()?, self.expr()?));
                }
                RowOp::Lookup { on, keep_unmatched }
            }
            OpForm::Cache => RowOp::Cache,
        })
    }

    fn expr(&mut self) -> Result<Expr, WireError> {
        let missing = || WireError::malformed("an operator without its expressions");
        self.exprs.next().ok_or_else(missing)
    }

    fn exprs(&mut self, count: usize) -> Result<Vec<Expr>, WireError> {
        if count > self.exprs.len() {
            return Err(WireError::malformed("an operator without its expressions"));
        }
        Ok(self.exprs.by_ref().take(count).collect())
    }
}

/// Checks that an operator fits its inputs: their number, their columns, and the types of the
/// operator's expressions over them.
fn check_inputs(op: &RowOp, inputs: &[RowPlan]) -> Result<(), WireError> {
    let unfit = || WireError::malformed("an operator that does not fit its inputs");
    let width = |input: &RowPlan| input.schema.fields().len();
    let fits = match (op, inputs) {
        (
            RowOp::Scan {
                source, projection, ..
            },
            [],
        ) => {
            let columns = source.schema().fields().len();
            projection.iter().all(|&column| column < columns)
        }
        (RowOp::Limit { .. } | RowOp::Cache, [_]) => true,
        (RowOp::Filter { conjuncts }, [input]) => {
            let over = ColumnIndex::of(&input.schema);
            for conjunct in conjuncts {
                let field = over.field_of(conjunct).map_err(PlanError::from)?;
                if !matches!(field.data_type(), DataType::Boolean | DataType::Null) {
                    return Err(unfit());
                }
            }
            true
        }
        (RowOp::Project { .. }, [_]) => true,
        (RowOp::Unnest { columns, lists, .. }, [input]) => {
            let width = width(input);
            columns.iter().chain(lists).all(|&column| column < width)
        }
        (RowOp::Union, [first, rest @ ..]) => rest.iter().all(|input| are_alike(first, input)),
        (RowOp::Mix(mix), [first, rest @ ..]) => {
            mix.arms() == inputs.len() && rest.iter().all(|input| are_alike(first, input))
        }
        (RowOp::Lookup { on, .. }, [left, right]) => {
            let (left, right) = (
                ColumnIndex::of(&left.schema),
                ColumnIndex::of(&right.schema),
            );
            for (l, r) in on {
                left.field_of(l).map_err(PlanError::from)?;
                right.field_of(r).map_err(PlanError::from)?;
            }
            !on.is_empty()
        }
        _ => false,
    };
    if fits { Ok(()) } else { Err(unfit()) }
}

/// True if two inputs of a union have columns of the same types.
fn are_alike(a: &RowPlan, b: &RowPlan) -> bool {
    types(&a.schema).eq(types(&b.schema))
}

fn types(schema: &Schema) -> impl Iterator<Item = &DataType> {
    schema.fields().iter().map(|field| field.data_type())
}

/// Returns the sent columns, which may differ from the derived ones in all but their types.
fn agreed(sent: Schema, derived: &Schema) -> Result<SchemaRef, WireError> {
    if types(&sent).eq(types(derived)) {
        Ok(Arc::new(sent))
    } else {
        Err(WireError::malformed(
            "an operator with columns of other types",
        ))
    }
}

/// Checks that no two columns have the same name, which the semantics of slots rely on.
fn check_names(schema: &Schema) -> Result<(), WireError> {
    let mut seen = BTreeSet::new();
    if schema
        .fields()
        .iter()
        .all(|field| seen.insert(field.name()))
    {
        Ok(())
    } else {
        Err(WireError::malformed(
            "an operator with two columns of one name",
        ))
    }
}
