//! What a builder reads.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};

use super::PipelineBuilder;
use super::mix::MixBuilder;
use super::relation::explain;
use crate::catalog::Catalog;
use crate::error::{PlanError, Result};
use crate::source::{Format, SourceSpec};
use crate::sql::canonical_name;

/// A source that a builder reads, with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceBuilder {
    spec: SourceSpec,
}

impl SourceBuilder {
    fn new(format: Format, location: impl Into<String>) -> Result<Self> {
        let location = location.into();
        if location.trim().is_empty() {
            let function = format.function();
            return Err(PlanError::mistake(format!(
                "{function} expects a path, found none"
            )));
        }
        let spec = SourceSpec {
            format,
            location,
            options: BTreeMap::new(),
            columns: None,
        };
        Ok(Self { spec })
    }

    /// Sets an option of the format, as `OPTIONS (key = value)` does.
    #[must_use]
    pub fn option(mut self, key: &str, value: impl ToString) -> Self {
        self.spec
            .options
            .insert(key.to_ascii_lowercase(), value.to_string());
        self
    }

    /// Declares the columns instead of having them inferred.
    #[must_use]
    pub fn columns(mut self, schema: SchemaRef) -> Self {
        self.spec.columns = Some(schema);
        self
    }

    /// The call of the table function that reads the source.
    pub(super) fn name(&self) -> String {
        canonical_name(&self.spec)
    }

    /// What the calls say of the source.
    pub const fn spec(&self) -> &SourceSpec {
        &self.spec
    }
}

macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident => $format:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// The path is empty.
        pub fn $name(location: impl Into<String>) -> Result<SourceBuilder> {
            SourceBuilder::new(Format::$format, location)
        }
    )*};
}

sources! {
    /// A folder of images, flat or with a folder per class: `FROM images('folder')`.
    images => ImageFolder;
    /// Parquet files: `FROM parquet('files')`.
    parquet => Parquet;
    /// CSV files: `FROM csv('files')`.
    csv => Csv;
    /// JSON lines: `FROM json('files')`.
    json => Json;
    /// Arrow IPC files: `FROM arrow('files')`.
    arrow => Arrow;
    /// Avro files: `FROM avro('files')`.
    avro => Avro;
}

/// What a pipeline begins with.
#[derive(Debug, Clone)]
pub enum Input {
    /// A source, opened by `build`.
    Source(SourceBuilder),
    /// A registered source or pipeline.
    Registered(String),
    /// A planned query.
    Planned(Box<LogicalPlan>),
    /// Several inputs, mixed by weight.
    Mix(MixBuilder),
    /// A pipeline that is built where it is read, as one more query: the arm of a [`mix`](super::mix()).
    Pipeline(Box<PipelineBuilder>),
}

/// A registered source or pipeline: `FROM name`.
pub fn table(name: impl Into<String>) -> Input {
    Input::Registered(name.into())
}

impl From<SourceBuilder> for Input {
    fn from(source: SourceBuilder) -> Self {
        Self::Source(source)
    }
}

impl From<&str> for Input {
    fn from(name: &str) -> Self {
        table(name)
    }
}

impl From<String> for Input {
    fn from(name: String) -> Self {
        table(name)
    }
}

impl From<MixBuilder> for Input {
    fn from(mix: MixBuilder) -> Self {
        Self::Mix(mix)
    }
}

impl From<PipelineBuilder> for Input {
    fn from(pipeline: PipelineBuilder) -> Self {
        Self::Pipeline(Box::new(pipeline))
    }
}

impl Input {
    /// The plan that scans the input, as `FROM` plans it.
    pub(super) async fn open(self, catalog: &Catalog) -> Result<LogicalPlan> {
        let builder = match self {
            Self::Mix(mix) => return mix.open(catalog).await,
            Self::Pipeline(_) => {
                return Err(PlanError::mistake(
                    "a pipeline is read by another one as an arm of a mix, or by its name",
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
