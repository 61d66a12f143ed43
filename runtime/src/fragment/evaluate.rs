//! Evaluation of expressions over a batch in which single rows may fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::compute::concat;
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use forebay_udfs::{RowFailure, bounded, row_function};

/// Operator and cause of each failed row.
pub type Failures = BTreeMap<usize, (String, String)>;

/// Evaluates `expr` for every row; a failed row has null and an entry in the failures.
///
/// # Errors
/// Failures that are no row's fault: I/O, memory, broken invariants.
pub fn evaluate(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<(ArrayRef, Failures)> {
    if let Some(call) = row_call(expr) {
        return invoke_rows(call, batch);
    }
    match expr
        .evaluate(batch)
        .and_then(|value| value.into_array(batch.num_rows()))
    {
        Ok(array) => Ok((array, Failures::new())),
        Err(error) => bisect(expr, batch, error),
    }
}

/// `expr` as a call of a function that reports its failed rows itself.
fn row_call(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarFunctionExpr> {
    expr.downcast_ref::<ScalarFunctionExpr>()
        .filter(|call| row_function(call.fun()).is_some())
}

fn invoke_rows(call: &ScalarFunctionExpr, batch: &RecordBatch) -> Result<(ArrayRef, Failures)> {
    let mut failures = Failures::new();
    let mut args = Vec::with_capacity(call.args().len());
    let mut arg_fields = Vec::with_capacity(call.args().len());
    for arg in call.args() {
        arg_fields.push(arg.return_field(batch.schema_ref())?);
        if row_call(arg).is_some() {
            let (array, of_arg) = evaluate(arg, batch)?;
            failures.extend(of_arg);
            args.push(ColumnarValue::Array(array));
            continue;
        }
        args.push(match arg.evaluate(batch) {
            Ok(value) => value,
            Err(error) => {
                let (array, of_arg) = bisect(arg, batch, error)?;
                failures.extend(of_arg);
                ColumnarValue::Array(array)
            }
        });
    }
    let Some(function) = row_function(call.fun()) else {
        return datafusion::common::internal_err!("{} does not report its rows", call.name());
    };
    let (array, failed) = function.invoke_rows(ScalarFunctionArgs {
        args,
        arg_fields,
        number_rows: batch.num_rows(),
        return_field: call.return_field(batch.schema_ref())?,
        config_options: Arc::new(ConfigOptions::default()),
    })?;
    for RowFailure {
        row,
        operator,
        cause,
    } in failed
    {
        // What failed first, further in, is the cause of what failed over it.
        failures
            .entry(row)
            .or_insert_with(|| (operator, bounded(cause)));
    }
    Ok((array, failures))
}

/// Finds the rows whose evaluation fails by halving the batch, and evaluates the others.
fn bisect(
    expr: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
    error: DataFusionError,
) -> Result<(ArrayRef, Failures)> {
    let rows = batch.num_rows();
    let (operator, cause) = row_cause(error)?;
    if rows <= 1 {
        let data_type = expr.data_type(batch.schema_ref())?;
        let operator = operator.unwrap_or_else(|| culprit(expr, batch, &cause));
        let cause = bounded(cause);
        let failures = (0..rows)
            .map(|row| (row, (operator.clone(), cause.clone())))
            .collect();
        return Ok((new_null_array(&data_type, rows), failures));
    }
    let half = rows / 2;
    let (first, mut failures) = evaluate(expr, &batch.slice(0, half))?;
    let (second, of_second) = evaluate(expr, &batch.slice(half, rows - half))?;
    failures.extend(of_second.into_iter().map(|(row, why)| (row + half, why)));
    Ok((concat(&[&first, &second])?, failures))
}

/// The cause, and the operator where the error names it, where the error is one that a row's value can
/// have; else the error.
fn row_cause(error: DataFusionError) -> Result<(Option<String>, String)> {
    match error {
        DataFusionError::External(source) => match source.downcast::<RowFailure>() {
            Ok(failure) => Ok((Some(failure.operator), failure.cause)),
            Err(source) => Err(DataFusionError::External(source)),
        },
        DataFusionError::Context(_, inner) => row_cause(*inner),
        DataFusionError::Execution(cause) => Ok((None, cause)),
        DataFusionError::ArrowError(arrow, backtrace) => match *arrow {
            ArrowError::ExternalError(source) => row_cause(DataFusionError::External(source)),
            ArrowError::IoError(..) | ArrowError::MemoryError(_) | ArrowError::SchemaError(_) => {
                Err(DataFusionError::ArrowError(arrow, backtrace))
            }
            value => Ok((None, value.to_string())),
        },
        other => Err(other),
    }
}

/// The innermost operator of `expr` that fails with `cause` on the one row of a batch. It is named
/// without its operands: which columns they are is the plan's choice.
fn culprit(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch, cause: &str) -> String {
    let same = |error| matches!(row_cause(error), Ok((_, inner)) if inner == cause);
    let inner = expr
        .children()
        .into_iter()
        .find(|child| child.evaluate(batch).is_err_and(same));
    if let Some(inner) = inner {
        return culprit(inner, batch, cause);
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return format!("CAST AS {}", cast.cast_type());
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return binary.op().to_string();
    }
    match expr.downcast_ref::<ScalarFunctionExpr>() {
        Some(call) => call.name().to_owned(),
        None => expr.to_string(),
    }
}
