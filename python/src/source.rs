//! What a pipeline reads: files by a builder's source, or SQL.

use std::collections::BTreeMap;

use forebay::builder::{self, SourceBuilder};
use forebay_planner::error::PlanError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The beginning of a pipeline.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Statements, and which of their pipelines is meant: the last one without a name.
    Sql(String, Option<String>),
    /// Files of a format, with the format's options.
    Files(String, String, BTreeMap<String, String>),
}

impl Source {
    /// Reads `("sql", text, name)` or `("files", format, location, options)`.
    pub(crate) fn read(source: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let kind: String = source.get_item(0)?.extract()?;
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
            Self::Files(..) => None,
        }
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
