//! What a pipeline reads: files by a builder's source, or SQL.

use std::collections::BTreeMap;

use forebay::builder::{self, MixStop, SourceBuilder};
use forebay_planner::error::PlanError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::steps::Step;

/// The beginning of a pipeline.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Statements, and which of their pipelines is meant: the last one without a name.
    Sql(String, Option<String>),
    /// Files of a format, with the format's options.
    Files(String, String, BTreeMap<String, String>),
    /// Pipelines mixed by weight, and when an epoch ends.
    Mix(Vec<Arm>, MixStop),
}

/// An arm of a mix.
#[derive(Debug, Clone)]
pub(crate) struct Arm {
    pub(crate) source: Source,
    pub(crate) steps: Vec<Step>,
    pub(crate) weight: f64,
}

impl Source {
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

    /// The text of SQL.
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
            source: Source::read(arm.get_item(0)?.cast::<PyTuple>()?)?,
            steps: steps.collect::<PyResult<_>>()?,
            weight: arm.get_item(2)?.extract()?,
        })
    }
}

/// A builder's source of a format.
pub(crate) fn files(
    format: &str,
    location: &str,
    options: &BTreeMap<String, String>,
) -> Result<SourceBuilder, PlanError> {
    let source = match format {
        "images" => builder::images(location),
        "parquet" => builder::parquet(location),
        "csv" => builder::csv(location),
        "json" => builder::json(location),
        "arrow" => builder::arrow(location),
        "avro" => builder::avro(location),
        other => return Err(PlanError::mistake(format!("no format is called {other:?}"))),
    }?;
    let set = |source: SourceBuilder, (key, value): (&String, &String)| source.option(key, value);
    Ok(options.iter().fold(source, set))
}
