//! The calls of a pipeline, replayed on the builder.

use datafusion::logical_expr::Expr;
use forebay::builder::{PipelineBuilder, Window};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::expr;

/// A call, with its arguments as the builder takes them.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Filter(Expr),
    WithColumn(String, Expr),
    Select(Vec<Expr>),
    Shuffle(Window, Option<u64>),
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
    /// Reads `(name, argument, ..)`.
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
                let window = window.map_or_else(Window::global, Window::rows);
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
            other => return Err(PyValueError::new_err(format!("no call is {other:?}"))),
        })
    }

    /// Replays the call. Options are no call of the builder's, and are set afterwards.
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

/// What follows the size of a batch: what becomes of the rows that do not fill one, and whom it is for.
fn rest(batched: PipelineBuilder, remainder: &str, global: bool) -> PipelineBuilder {
    let batched = match remainder {
        "drop" => batched.drop_remainder(),
        "pad" => batched.pad_remainder(),
        _ => batched,
    };
    if global { batched.global() } else { batched }
}
