//! Converts keyword arguments to the settings of a run.

use std::sync::Arc;

use forebay::clauses::Optimize;
use forebay::{RunConfig, SavedPlan, Token, Uneven};
use forebay_planner::units::parse_bytes;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::error;

/// Reads the settings of a run from keyword arguments. A value of `None` keeps the default.
pub(crate) fn read(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<RunConfig> {
    let mut config = RunConfig::default();
    for (name, value) in settings {
        if value.is_none() {
            continue;
        }
        let name: String = name.extract()?;
        let number = || whole(py, &name, &value);
        match name.as_str() {
            "first_epoch" => config.first_epoch = number()?,
            "epochs" => match number()? {
                0 => return Err(error::config(py, "epochs must be at least 1, found 0")),
                epochs => config.epochs = Some(epochs),
            },
            "seed" => config.seed = Some(number()?),
            "rank" => config.rank = number()?,
            "world" => config.world = number()?,
            "turn" => config.internals.stride.first = number()?,
            "turns" => config.internals.stride.of = number()?,
            "resume" => {
                let text: String = value.extract()?;
                let token = Token::from_json(&text)
                    .map_err(|error| error::exception(py, &error.into(), None))?;
                config.resume = Some(Arc::new(token));
            }
            "threads" => config.threads = Some(number()?.max(1) as usize),
            "limit_batches" => config.limit_batches = Some(number()?),
            "memory_limit" => config.memory_limit = Some(bytes(py, &value)?),
            "uneven" => {
                config.uneven = match value.extract::<String>()?.as_str() {
                    "keep" => Uneven::Keep,
                    "pad" => Uneven::Pad,
                    "drop" => Uneven::Drop,
                    other => {
                        let what = format!(
                            "uneven must be \"pad\", \"drop\" or \"keep\", found {other:?}"
                        );
                        return Err(error::config(py, what));
                    }
                };
            }
            "segment_rows" => config.internals.segment_rows = Some(number()?),
            "optimize" => {
                config.optimize = Some(if value.extract()? {
                    Optimize::Default
                } else {
                    Optimize::Off
                });
            }
            "plan" => {
                let text: String = value.extract()?;
                let saved = SavedPlan::from_json(&text).map_err(|error| {
                    let error = forebay::Error::Plan(error.into());
                    error::exception(py, &error, None)
                })?;
                config.plan = Some(Arc::new(saved));
            }
            other => return Err(error::config(py, format!("unknown setting {other:?}"))),
        }
    }
    Ok(config)
}

/// Raises a `ConfigError` if a setting of a run is invalid.
#[pyfunction]
pub(crate) fn check_settings(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<()> {
    read(py, settings).map(drop)
}

fn whole(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    value.extract().map_err(|_| {
        let found = value.repr().map(|r| r.to_string()).unwrap_or_default();
        error::config(
            py,
            format!("{name} must be a whole number of at least 0, found {found}"),
        )
    })
}

/// Reads a size: a number of bytes, or a text such as `"2GiB"`.
pub(crate) fn bytes(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    match value.cast::<PyString>() {
        Ok(text) => parse_bytes(text.to_str()?).map_err(|why| error::config(py, why)),
        Err(_) => whole(py, "memory_limit", value),
    }
}
