//! Encodes written plans.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, TableSource};

use super::error::WireError;
use super::form::{NodeForm, OpForm};
use super::source::{DescribeTable, SourceMessage};
use super::write_expr::write_expr;
use crate::error::PlanError;
use crate::rows::{RowOp, RowPlan};

/// Encodes a written plan node by node.
pub(super) struct PlanWriter<'a> {
    pub(super) describe: &'a DescribeTable,
    /// The distinct sources of the nodes.
    pub(super) sources: Vec<SourceMessage>,
    /// The table of each source.
    pub(super) tables: Vec<Arc<dyn TableSource>>,
    /// The nodes.
    pub(super) nodes: Vec<NodeForm>,
    /// The expressions of the nodes.
    pub(super) exprs: Vec<u8>,
}

impl<'a> PlanWriter<'a> {
    pub(super) fn new(describe: &'a DescribeTable) -> Self {
        Self {
            describe,
            sources: Vec::new(),
            tables: Vec::new(),
            nodes: Vec::new(),
            exprs: Vec::new(),
        }
    }

    /// Adds a plan: the inputs of each node before the node.
    pub(super) fn add(&mut self, plan: &RowPlan) -> Result<(), WireError> {
        for input in &plan.inputs {
            self.add(input)?;
        }
        let schemas: Vec<&SchemaRef> = plan.inputs.iter().map(|input| &input.schema).collect();
        let derived = plan.op.output_schema(&schemas).map_err(PlanError::from)?;
        let form = NodeForm {
            op: self.op(&plan.op)?,
            inputs: plan.inputs.len(),
            schema: (derived != plan.schema).then(|| plan.schema.as_ref().clone()),
        };
        self.nodes.push(form);
        Ok(())
    }

    fn op(&mut self, op: &RowOp) -> Result<OpForm, WireError> {
        Ok(match op {
            RowOp::Scan {
                occurrence,
                name,
                source,
                projection,
                // Only the chosen plan has hints for the reader.
                prune: _,
            } => OpForm::Scan {
                occurrence: *occurrence,
                name: name.clone(),
                source: self.source(name, source)?,
                projection: projection.clone(),
            },
            RowOp::Filter { conjuncts } => OpForm::Filter {
                conjuncts: self.exprs(conjuncts)?,
            },
            RowOp::Project { exprs } => {
                self.exprs(exprs.iter().map(|named| &named.expr))?;
                OpForm::Project {
                    names: exprs.iter().map(|named| named.name.clone()).collect(),
                }
            }
            RowOp::Union => OpForm::Union,
            RowOp::Mix(mix) => OpForm::Mix {
                weights: mix.weights().to_vec(),
                stop: mix.stop(),
            },
            RowOp::Limit { skip, fetch } => OpForm::Limit {
                skip: *skip,
                fetch: *fetch,
            },
            RowOp::Unnest {
                columns,
                lists,
                preserve_nulls,
            } => OpForm::Unnest {
                columns: columns.clone(),
                lists: lists.clone(),
                preserve_nulls: *preserve_nulls,
            },
            RowOp::Lookup { on, keep_unmatched } => {
                self.exprs(on.iter().flat_map(|(left, right)| [left, right]))?;
                OpForm::Lookup {
                    pairs: on.len(),
                    keep_unmatched: *keep_unmatched,
                }
            }
            RowOp::Cache => OpForm::Cache,
        })
    }

    /// Adds expressions, and returns their number.
    fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) -> Result<usize, WireError> {
        let mut count = 0;
        for expr in exprs {
            write_expr(expr, &mut self.exprs)?;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the index of the source of the scan `name`. A source that is scanned twice is sent
    /// once.
    fn source(&mut self, name: &str, source: &Arc<dyn TableSource>) -> Result<usize, WireError> {
        let provider = source_as_provider(source).map_err(PlanError::from)?;
        let Some((spec, files)) = (self.describe)(provider.as_ref()) else {
            return Err(WireError::Table(name.to_owned()));
        };
        let message = SourceMessage {
            spec,
            files,
            schema: source.schema(),
        };
        let known = self.sources.iter().position(|known| *known == message);
        Ok(known.unwrap_or_else(|| {
            self.sources.push(message);
            self.tables.push(Arc::clone(source));
            self.sources.len() - 1
        }))
    }
}
