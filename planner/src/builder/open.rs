//! Plans the pipeline that the calls of a builder describe.
//!
//! The functions of this file call each other, because an input may be a mix, an arm of a mix may
//! be a pipeline, and a pipeline has an input.

use std::future::Future;
use std::pin::Pin;

use arrow::datatypes::DataType;
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::cast;

use super::input::{MixBuilder, PipelineBuilder, PipelineInput};
use super::relation::{Relation, RelationStep, explain};
use super::source::SourceBuilder;
use crate::catalog::Catalog;
use crate::clauses::ClausePositions;
use crate::error::{PlanError, Result};
use crate::groups::check_groups;
use crate::mix::{MixInput, mixed};
use crate::output::check_batch;
use crate::pipeline::{BUCKET_COLUMN, Pipeline};
use crate::sql::canonical_name;

impl PipelineBuilder {
    /// Opens the sources and plans the pipeline.
    ///
    /// # Errors
    /// Fails if calls are in the wrong order, a size is 0, a source cannot be opened, a column or
    /// function is unknown, a type is wrong, or tensors of a batch may differ in shape.
    pub async fn build(self, catalog: &Catalog) -> Result<Pipeline> {
        let clauses = self.stages.finish()?;
        let input = self.input.open(catalog).await?;
        let mut relation = Relation::new(catalog, input);
        for step in self.steps {
            relation.apply(step)?;
        }
        let plan = relation.finish()?;
        check_groups(plan.schema(), &clauses, &ClausePositions::default())?;
        if clauses.batch.is_some() {
            check_batch(plan.schema(), None)?;
        }
        let bucketed = match self.bucket_by {
            // No call that changes rows may follow `bucket_by`, so the bucket column that an
            // earlier `bucket_by` computed is still valid.
            None => self.bucketed,
            Some(by) => {
                let mut relation = Relation::new(catalog, plan.clone());
                let by = cast(by, DataType::Float64);
                relation.apply(RelationStep::WithColumn(BUCKET_COLUMN.to_owned(), by))?;
                Some(relation.finish()?)
            }
        };
        Ok(Pipeline {
            name: None,
            plan,
            bucketed,
            clauses,
            text: None,
        })
    }
}

impl PipelineInput {
    /// Plans the scan of the input, as `FROM` does.
    pub(super) async fn open(self, catalog: &Catalog) -> Result<LogicalPlan> {
        let builder = match self {
            Self::Mix(mix) => return mix.open(catalog).await,
            Self::Pipeline(_) => {
                return Err(PlanError::mistake(
                    "a pipeline can read another pipeline only by its registered name, or as an arm of a mix",
                ));
            }
            Self::Source(SourceBuilder { spec }) => {
                let name = canonical_name(&spec);
                let table = catalog.open(&name, None, &spec).await?;
                let alias = TableReference::bare(spec.format.function());
                LogicalPlanBuilder::scan(
                    TableReference::bare(name),
                    provider_as_source(table),
                    None,
                )
                .and_then(|builder| builder.alias(alias))
            }
            Self::Registered(name) => {
                let table = catalog.table(&name, None)?;
                LogicalPlanBuilder::scan(
                    TableReference::bare(name),
                    provider_as_source(table),
                    None,
                )
            }
            Self::Planned(plan) => return Ok(*plan),
        };
        builder
            .and_then(LogicalPlanBuilder::build)
            .map_err(|error| explain(&error))
    }
}

impl MixBuilder {
    /// Plans the mix of the inputs, as `FROM MIX (..)` does. An input may itself be a mix, so this
    /// function is recursive and its future is boxed.
    pub(super) fn open(
        self,
        catalog: &Catalog,
    ) -> Pin<Box<dyn Future<Output = Result<LogicalPlan>> + Send + '_>> {
        Box::pin(async move {
            let mut arms = Vec::with_capacity(self.arms.len());
            for (number, (input, weight)) in (1..).zip(self.arms) {
                arms.push(MixInput {
                    name: match &input {
                        PipelineInput::Registered(name) => format!("\"{name}\""),
                        PipelineInput::Source(source) => format!("\"{}\"", source.name()),
                        PipelineInput::Mix(_)
                        | PipelineInput::Pipeline(_)
                        | PipelineInput::Planned(_) => {
                            format!("arm {number}")
                        }
                    },
                    position: None,
                    plan: arm(input, catalog).await?,
                    weight,
                });
            }
            let state = catalog.session().state();
            mixed(arms, self.stop, None, state.config_options())
                .and_then(|plan| LogicalPlanBuilder::from(plan).alias("mix")?.build())
                .map_err(|error| explain(&error))
        })
    }
}

/// Plans the query of one arm of a mix.
async fn arm(input: PipelineInput, catalog: &Catalog) -> Result<LogicalPlan> {
    let PipelineInput::Pipeline(pipeline) = input else {
        return input.open(catalog).await;
    };
    let pipeline = pipeline.build(catalog).await?;
    if pipeline.clauses != Default::default() {
        let message = "an arm of a mix must be a pipeline without clauses, which only filters and computes columns";
        return Err(PlanError::mistake(message)
            .with_hint("shuffle, take, batch and set options on the pipeline that reads the mix"));
    }
    Ok(pipeline.plan)
}
