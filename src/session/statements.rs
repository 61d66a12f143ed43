//! SQL statements in a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::not_impl_err;
use forebay_planner::catalog::Existing;
use forebay_planner::compile::Compiled;
use forebay_planner::error::{PlanError, Position};
use forebay_planner::rows::bind::draws;
use forebay_planner::rows::lower::lower;
use forebay_planner::sql::{ExplainMode, ExplainTarget, Name, PipelineQuery, Statement, parse};
use forebay_runtime::run::RunConfig;

use super::{ANONYMOUS, Session};
use crate::compile::{compile, keyed};
use crate::error::{Error, Result, engine, planning};
use crate::pipeline_table::{PipelineTable, one_epoch};

/// Result of a statement.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The statement changed the session; the text is a one-line summary.
    Done(String),
    /// The rows of a query. The schema is separate because there may be no batches.
    Table(SchemaRef, Vec<RecordBatch>),
    /// Text, such as an explanation.
    Text(String),
}

impl Session {
    /// Executes statements in order, and returns their outcomes. A query runs for one epoch, and
    /// the BATCH clause of a query is ignored.
    ///
    /// # Errors
    /// Returns the error of the first statement that fails. All statements before the failed one
    /// have taken effect.
    pub async fn execute(&self, sql: &str) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for statement in parse(sql)? {
            outcomes.push(self.statement(statement).await?);
        }
        Ok(outcomes)
    }

    /// Executes statements that define tables and pipelines, and returns the names of the pipelines
    /// in the order of the statements. A query without CREATE PIPELINE defines a pipeline named
    /// `query`.
    pub async fn load(&self, sql: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for statement in parse(sql)? {
            match statement {
                Statement::Query(query) => {
                    let name = Name {
                        value: ANONYMOUS.to_owned(),
                        position: query.start,
                    };
                    self.create_pipeline(&name, Existing::Replace, &query)
                        .await?;
                    names.retain(|n| n != ANONYMOUS);
                    names.push(ANONYMOUS.to_owned());
                }
                Statement::CreatePipeline { ref name, .. } => {
                    let name = name.value.clone();
                    self.statement(statement).await?;
                    names.retain(|n| *n != name);
                    names.push(name);
                }
                other => drop(self.statement(other).await?),
            }
        }
        Ok(names)
    }

    async fn statement(&self, statement: Statement) -> Result<Outcome> {
        match statement {
            Statement::CreateSource {
                name,
                or_replace,
                if_not_exists,
                spec,
            } => {
                let existing = Existing::of(or_replace, if_not_exists);
                let catalog = self.catalog();
                if !catalog.keeps_source(&name, existing)? {
                    let source = catalog.open_source(&name, spec).await?;
                    self.change(|catalog| catalog.register_source(&name, existing, source))?;
                }
                Ok(Outcome::Done(format!("created table {}", name.value)))
            }
            Statement::CreatePipeline {
                name,
                or_replace,
                if_not_exists,
                query,
            } => {
                let existing = Existing::of(or_replace, if_not_exists);
                self.create_pipeline(&name, existing, &query).await?;
                Ok(Outcome::Done(format!("created pipeline {}", name.value)))
            }
            Statement::DropSource { name, if_exists } => {
                self.change(|catalog| catalog.drop_source(&name, if_exists))?;
                Ok(Outcome::Done(format!("dropped table {}", name.value)))
            }
            Statement::DropPipeline { name, if_exists } => {
                self.change(|catalog| catalog.drop_pipeline(&name, if_exists))?;
                Ok(Outcome::Done(format!("dropped pipeline {}", name.value)))
            }
            Statement::ShowSources => {
                let catalog = self.catalog();
                let sources = catalog.sources();
                let specs = || sources.values().map(|s| &s.spec);
                text_table([
                    ("name", sources.keys().cloned().collect()),
                    ("format", specs().map(|s| s.format.to_string()).collect()),
                    ("location", specs().map(|s| s.location.clone()).collect()),
                ])
            }
            Statement::ShowPipelines => {
                let catalog = self.catalog();
                let pipelines = catalog.pipelines();
                let texts = pipelines
                    .values()
                    .map(|p| p.text.clone().unwrap_or_default());
                text_table([
                    ("name", pipelines.keys().cloned().collect()),
                    ("query", texts.collect()),
                ])
            }
            Statement::Describe { name } => {
                let schema = self.catalog().describe(&name)?;
                let fields = || schema.fields().iter();
                text_table([
                    ("column", fields().map(|f| f.name().clone()).collect()),
                    (
                        "type",
                        fields().map(|f| crate::explain::type_text(f)).collect(),
                    ),
                    (
                        "nullable",
                        fields().map(|f| f.is_nullable().to_string()).collect(),
                    ),
                ])
            }
            Statement::Explain { mode, target } => self.explain_statement(mode, target).await,
            Statement::Query(query) => self.query(&query).await,
        }
    }

    async fn explain_statement(&self, mode: ExplainMode, target: ExplainTarget) -> Result<Outcome> {
        let pipeline = match target {
            ExplainTarget::Pipeline(name) => self.catalog().pipeline(&name)?,
            ExplainTarget::Query(query) => Arc::new(self.catalog().plan_query(&query).await?),
        };
        let analyze = mode == ExplainMode::Analyze;
        let config = RunConfig::default();
        let explained = self.explained(&pipeline, config, analyze).await?;
        Ok(Outcome::Text(match mode {
            ExplainMode::WhyNot(rule) => explained.why_not(&rule)?.to_string(),
            ExplainMode::Verbose => explained.verbose().to_string(),
            ExplainMode::Plain | ExplainMode::Analyze => explained.to_string(),
        }))
    }

    async fn create_pipeline(
        &self,
        name: &Name,
        existing: Existing,
        query: &PipelineQuery,
    ) -> Result<()> {
        let catalog = self.catalog();
        if catalog.keeps_pipeline(name, existing)? {
            return Ok(());
        }
        // A pipeline whose plan cannot be compiled is refused now rather than when the pipeline is
        // run.
        let planned = catalog.plan_query(query).await?;
        let clauses = planned.clauses.clone();
        compile(&keyed(&planned)?, clauses).map_err(|e| positioned(e, query.start))?;
        let place = Some(name.position);
        self.change(|catalog| catalog.register_pipeline(&name.value, place, existing, planned))?;
        Ok(())
    }

    /// Runs a query in Forebay's engine if the engine can compile the query, else in DataFusion. A
    /// query that has only row-wise operators or calls random functions never runs in DataFusion:
    /// if such a query cannot be compiled, the compile error is returned.
    async fn query(&self, query: &PipelineQuery) -> Result<Outcome> {
        let catalog = self.catalog();
        let mut tables: BTreeMap<String, Arc<dyn TableProvider>> = BTreeMap::new();
        for name in catalog.pipelines_in(query) {
            let pipeline = Arc::clone(&catalog.pipelines()[&name]);
            let clauses = one_epoch(pipeline.clauses.clone());
            let compiled = compile(&pipeline.plan, clauses)?;
            tables.insert(
                name,
                Arc::new(PipelineTable::new(compiled, self.opener.clone())),
            );
        }
        let pipeline = catalog.plan_query_with(query, &tables).await?;
        let keyed = if tables.is_empty() {
            Compiled::new(&pipeline.plan, one_epoch(pipeline.clauses.clone()))
        } else {
            not_impl_err!(
                "random functions in a query over a pipeline are not supported yet; call them in the pipeline itself"
            )
        };
        match keyed {
            Ok(compiled) => {
                let opened = self.opener.open(&compiled, &RunConfig::default()).await?;
                let schema = opened.schema()?;
                let mut run = opened.start();
                let mut batches = Vec::new();
                while let Some(batch) = run.next().await {
                    batches.push(batch?.batch);
                }
                return Ok(Outcome::Table(schema, batches));
            }
            Err(why) => {
                let is_rowwise = tables.is_empty() && lower(&pipeline.plan).is_ok();
                if is_rowwise || draws(&pipeline.plan).map_err(planning)? {
                    return Err(positioned(planning(why), query.start));
                }
            }
        }
        let frame = datafusion::dataframe::DataFrame::new(catalog.session().state(), pipeline.plan);
        let schema = Arc::clone(frame.schema().inner());
        let batches = frame.collect().await.map_err(engine)?;
        Ok(Outcome::Table(schema, batches))
    }
}

fn positioned(error: Error, position: Position) -> Error {
    match error {
        Error::Plan(PlanError::Mistake(mut mistake)) => {
            mistake.position = mistake.position.or(Some(position));
            Error::Plan(PlanError::Mistake(mistake))
        }
        other => other,
    }
}

fn text_table<const N: usize>(columns: [(&str, Vec<String>); N]) -> Result<Outcome> {
    let columns = columns.map(|(name, values)| {
        (
            name,
            Arc::new(StringArray::from_iter_values(values)) as ArrayRef,
        )
    });
    let batch = RecordBatch::try_from_iter(columns).map_err(|e| engine(e.into()))?;
    Ok(Outcome::Table(batch.schema(), vec![batch]))
}
