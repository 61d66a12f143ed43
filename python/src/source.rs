//! The sources of a pipeline: files through the builder, SQL, or a mix of pipelines.

use std::collections::BTreeMap;

use forebay::builder::{self, MixStop, SourceBuilder};
use forebay_planner::error::PlanError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::steps::Step;

/// The source of a pipeline.
#[derive(Debug, Clone)]
pub(crate) enum PipelineSource {
    /// SQL statements, and the name of the pipeline to use; `None` selects the last pipeline that
    /// the statements define.
    Sql(String, Option<String>),
    /// Files: their format, their location, and the options of the format.
    Files(String, String, BTreeMap<String, String>),
    /// Pipelines that are mixed by weight, and the condition that ends an epoch.
    Mix(Vec<Arm>, MixStop),
}

/// An input of a mix: a pipeline and its weight.
#[derive(Debug, Clone)]
pub(crate) struct Arm {
    pub(crate) source: PipelineSource,
    pub(crate) steps: Vec<Step>,
    pub(crate) weight: f64,
}

impl PipelineSource {
    /// Reads `("sql", text, name)`, `("files", format, location, options)`, or
    /// `("mix", ((source, steps, weight), ..), stop)`.
    pub(crate) fn read(source: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let kind: String = source.get_item(0)?.extract()?;
        if kind == "mix" {
            let arms = source.get_item(1)?.try_iter()?;
            let stop: String = source.get_item(2)?.extract()?;
            let stop = match stop.as_str() {
                "longest" => MixStop::Longest,
                _ => MixStop::First,
            };
            let arms = arms.map(|arm| Arm::read(arm?.cast::<PyTuple>()?));
            return Ok(Self::Mix(arms.collect::<PyResult<_>>()?, stop));
        }
        let text: String = source.get_item(1)?.extract()?;
        Ok(match kind.as_str() {
            "sql" => Self::Sql(text, source.get_item(2)?.extract()?),
            _ => Self::Files(
                text,
                source.get_item(2)?.extract()?,
                source.get_item(3)?.extract()?,
            ),
        })
    }

    /// Returns the SQL text; `None` if the source is not SQL.
    pub(crate) fn sql(&self) -> Option<&str> {
        match self {
            Self::Sql(text, _) => Some(text),
            Self::Files(..) | Self::Mix(..) => None,
        }
    }
}

impl Arm {
    fn read(arm: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let steps = arm.get_item(1)?;
        let steps = steps.try_iter()?.map(|step| Step::read(&step?));
        Ok(Self {
            source: PipelineSource::read(arm.get_item(0)?.cast::<PyTuple>()?)?,
            steps: steps.collect::<PyResult<_>>()?,
            weight: arm.get_item(2)?.extract()?,
        })
    }
}

/// Creates a source of the Rust builder for the files of the format `format` at `location`.
pub(crate) fn files(
    format: &str,
    location: &str,
    options: &BTreeMap<String, String>,
) -> Result<SourceBuilder, PlanError> {
    let source = builder::files(format, location)?;
    let set = |source: SourceBuilder, (key, value): (&String, &String)| source.option(key, value);
    Ok(options.iter().fold(source, set))
}
