//! Replays the calls that a Python program made on a pipeline, on the Rust builder.

use datafusion::logical_expr::Expr;
use forebay::builder::{PipelineBuilder, WindowSize};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::expr;

/// A method call on a Python pipeline, with its arguments in the types of the Rust builder.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Filter(Expr),
    WithColumn(String, Expr),
    Select(Vec<Expr>),
    Shuffle(WindowSize, Option<u64>),
    Seed(u64),
    Skip(u64),
    Take(u64),
    Batch {
        rows: u64,
        remainder: String,
        global: bool,
    },
    Pack(String, u64),
    BucketBy(Expr, Vec<u64>),
    BatchByTokens {
        tokens: u64,
        column: String,
        remainder: String,
        global: bool,
    },
    Pad {
        column: String,
        to: Option<u64>,
        value: Option<String>,
    },
    Repeat(Option<u64>),
    Options(Vec<String>, String),
    Cache(String),
}

impl Step {
    /// Reads a call from the tuple `(name, argument, ..)`.
    pub(crate) fn read(step: &Bound<'_, PyAny>) -> PyResult<Self> {
        let step = step.cast::<PyTuple>()?;
        let name: String = step.get_item(0)?.extract()?;
        let part = |i: usize| step.get_item(i);
        Ok(match name.as_str() {
            "filter" => Self::Filter(expr::read(&part(1)?)?),
            "with_column" => Self::WithColumn(part(1)?.extract()?, expr::read(&part(2)?)?),
            "select" => Self::Select(expr::all(&part(1)?)?),
            "shuffle" => {
                let window = part(1)?.extract::<Option<u64>>()?;
                let window = window.map_or_else(WindowSize::global, WindowSize::rows);
                Self::Shuffle(window, part(2)?.extract()?)
            }
            "seed" => Self::Seed(part(1)?.extract()?),
            "skip" => Self::Skip(part(1)?.extract()?),
            "take" => Self::Take(part(1)?.extract()?),
            "batch" => Self::Batch {
                rows: part(1)?.extract()?,
                remainder: part(2)?.extract()?,
                global: part(3)?.extract()?,
            },
            "pack" => Self::Pack(part(1)?.extract()?, part(2)?.extract()?),
            "bucket_by" => Self::BucketBy(expr::read(&part(1)?)?, part(2)?.extract()?),
            "batch_by_tokens" => Self::BatchByTokens {
                tokens: part(1)?.extract()?,
                column: part(2)?.extract()?,
                remainder: part(3)?.extract()?,
                global: part(4)?.extract()?,
            },
            "pad" => Self::Pad {
                column: part(1)?.extract()?,
                to: part(2)?.extract()?,
                value: part(3)?.extract()?,
            },
            "repeat" => Self::Repeat(part(1)?.extract()?),
            "options" => Self::Options(part(1)?.extract()?, part(2)?.extract()?),
            "cache" => Self::Cache(part(1)?.extract()?),
            other => return Err(PyValueError::new_err(format!("unknown call {other:?}"))),
        })
    }

    /// Replays the call on a builder. Options and the cache are set later, since the builder has no
    /// methods for options and caches.
    pub(crate) fn apply(self, before: PipelineBuilder) -> PipelineBuilder {
        match self {
            Self::Filter(predicate) => before.filter(predicate),
            Self::WithColumn(name, value) => before.with_column(name, value),
            Self::Select(columns) => before.select(columns),
            Self::Shuffle(window, Some(seed)) => before.shuffle(window, seed),
            Self::Shuffle(window, None) => before.shuffle_unseeded(window),
            Self::Seed(seed) => before.seed(seed),
            Self::Skip(rows) => before.skip(rows),
            Self::Take(rows) => before.take(rows),
            Self::Batch {
                rows,
                remainder,
                global,
            } => rest(before.batch(rows), &remainder, global),
            Self::BatchByTokens {
                tokens,
                column,
                remainder,
                global,
            } => rest(before.batch_by_tokens(tokens, column), &remainder, global),
            Self::Pack(column, into) => before.pack(column, into),
            Self::BucketBy(value, boundaries) => before.bucket_by(value, boundaries),
            Self::Pad { column, to, value } => {
                let padded = match to {
                    Some(elements) => before.pad_to(column, elements),
                    None => before.pad(column),
                };
                match value {
                    Some(value) => padded.pad_with(value),
                    None => padded,
                }
            }
            Self::Repeat(Some(epochs)) => before.repeat(epochs),
            Self::Repeat(None) => before.repeat_forever(),
            Self::Options(..) | Self::Cache(_) => before,
        }
    }
}

/// Sets what happens to rows that do not fill the last batch, and the scope of the batch size.
fn rest(batched: PipelineBuilder, remainder: &str, global: bool) -> PipelineBuilder {
    let batched = match remainder {
        "drop" => batched.drop_remainder(),
        "pad" => batched.pad_remainder(),
        _ => batched,
    };
    if global { batched.global() } else { batched }
}
