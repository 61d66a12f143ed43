//! Evaluation of expressions over batches in which single rows may fail.
//!
//! An expression is evaluated over the whole batch. If the evaluation fails, the batch is bisected
//! until the failing rows are isolated. Each half is [compacted](super::compact) before its
//! evaluation, so a kernel sees no values of other rows, and the value of a row depends on that row
//! alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array, new_empty_array, new_null_array};
use arrow::compute::take;
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, LikeExpr, Literal,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use forebay_udfs::{
    MAX_BATCH_BYTES, OversizedBatch, RowFailure, RunFailure, bounded, row_function,
};

use super::compact::compact_batch;
use super::concat::{Oversized, concatenated};
use super::conform::conform;
use super::unwind::caught;
use super::wrapped::{row_call, uncleared};

/// Failed rows of a batch, by row index: the operator that failed, and the cause of the failure.
pub type Failures = BTreeMap<usize, (String, String)>;

/// Evaluates `expr` for every row of `batch`. A row for which `expr` fails gets null and an entry
/// in the returned failures.
///
/// # Errors
/// Returns the errors for which no row is at fault: I/O errors, lack of memory, and rows that do
/// not fit into one array.
pub fn evaluate(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<(ArrayRef, Failures)> {
    // A kernel evaluates its constants even over zero rows, and may fail, so no kernel is called
    // here.
    if batch.num_rows() == 0 {
        let data_type = expr.data_type(batch.schema_ref())?;
        return Ok((new_empty_array(&data_type), Failures::new()));
    }
    check_constants(expr, batch.num_rows())?;
    match attempt(expr, batch) {
        Ok(evaluated) => Ok(evaluated),
        Err(Failed::Rows { .. }) => recover(expr, batch),
        Err(Failed::Run(error)) => Err(error),
    }
}

/// Returns an error if a constant in `expr`, repeated for each of `rows` rows, exceeds the size of
/// a column.
fn check_constants(expr: &Arc<dyn PhysicalExpr>, rows: usize) -> Result<()> {
    if rows > 1 && repeated_bytes(expr).saturating_mul(rows as u64) > MAX_BATCH_BYTES {
        let function = "a constant".to_owned();
        let oversized = OversizedBatch { function, rows };
        return Err(DataFusionError::External(Box::new(oversized)));
    }
    Ok(())
}

/// Returns the total size, in bytes, of the constants in `expr` that a kernel may repeat for each
/// row. Binary operators, LIKE and IN lists use constants without repeating them.
fn repeated_bytes(expr: &Arc<dyn PhysicalExpr>) -> u64 {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        let bytes = literal.value().size();
        return bytes.saturating_sub(size_of::<ScalarValue>()) as u64;
    }
    let children = match expr.downcast_ref::<InListExpr>() {
        Some(list) => vec![list.expr()],
        None => expr.children(),
    };
    let keeps_constants = expr.is::<BinaryExpr>() || expr.is::<LikeExpr>();
    let repeated = children
        .into_iter()
        .filter(|child| !(keeps_constants && child.is::<Literal>()));
    repeated.map(repeated_bytes).fold(0, u64::saturating_add)
}

/// The reason why an evaluation over a batch failed.
enum Failed {
    /// The value of some row is at fault.
    Rows {
        /// The operator that failed, if the error names an operator.
        operator: Option<String>,
        cause: String,
    },
    /// No row is at fault, as in an I/O error.
    Run(DataFusionError),
}

impl From<DataFusionError> for Failed {
    fn from(error: DataFusionError) -> Self {
        match row_cause(error) {
            Ok((operator, cause)) => Self::Rows { operator, cause },
            Err(error) => Self::Run(error),
        }
    }
}

/// Evaluates `expr` over the whole of `batch`, and fails if any row fails. Only a function that
/// reports its failed rows itself returns them as failures.
fn attempt(
    expr: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
) -> std::result::Result<(ArrayRef, Failures), Failed> {
    if let Some(call) = row_call(expr) {
        return invoke_rows(call, batch);
    }
    let array = value_of(expr, batch)?
        .into_array(batch.num_rows())
        .and_then(|array| Ok(conform(array, &expr.data_type(batch.schema_ref())?)?))?;
    Ok((array, Failures::new()))
}

/// Evaluates `expr` over `batch`. A panic of a kernel becomes an error.
fn value_of(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ColumnarValue> {
    caught(|| expr.evaluate(batch))?
}

fn invoke_rows(
    call: &ScalarFunctionExpr,
    batch: &RecordBatch,
) -> std::result::Result<(ArrayRef, Failures), Failed> {
    let (args, mut failures) = arguments(call, batch).map_err(Failed::Run)?;
    let invoked = caught(|| match row_function(call.fun()) {
        Some(function) => function.invoke_rows(args),
        None => internal_err!("{} does not report its rows", call.name()),
    });
    let (array, failed) = match invoked {
        Ok(invoked) => invoked.map_err(Failed::Run)?,
        Err(panicked) => {
            return Err(Failed::Rows {
                operator: Some(call.name().to_owned()),
                cause: panicked.to_string(),
            });
        }
    };
    for failure in failed {
        // If an argument already failed for this row, the failure of the argument is reported,
        // because it caused the failure of the function.
        let why = || (failure.operator, bounded(failure.cause));
        failures.entry(failure.row).or_insert_with(why);
    }
    Ok((array, failures))
}

/// Evaluates the arguments of `call` over `batch`. Also returns the rows for which an argument
/// failed.
fn arguments(
    call: &ScalarFunctionExpr,
    batch: &RecordBatch,
) -> Result<(ScalarFunctionArgs, Failures)> {
    let mut failures = Failures::new();
    let mut args = Vec::with_capacity(call.args().len());
    let mut arg_fields = Vec::with_capacity(call.args().len());
    for arg in call.args() {
        arg_fields.push(arg.return_field(batch.schema_ref())?);
        let (value, arg_failures) = argument(arg, batch)?;
        // If several arguments fail for a row, the failure of the first argument is reported.
        for (row, why) in arg_failures {
            failures.entry(row).or_insert(why);
        }
        args.push(value);
    }
    let args = ScalarFunctionArgs {
        args,
        arg_fields,
        number_rows: batch.num_rows(),
        return_field: call.return_field(batch.schema_ref())?,
        config_options: Arc::new(ConfigOptions::default()),
    };
    Ok((args, failures))
}

/// Evaluates `arg`, an argument of a function. A scalar is not expanded to an array.
fn argument(arg: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<(ColumnarValue, Failures)> {
    if row_call(arg).is_none() {
        match value_of(arg, batch).map_err(Failed::from) {
            Ok(value) => return Ok((value, Failures::new())),
            Err(Failed::Run(error)) => return Err(error),
            Err(Failed::Rows { .. }) => {}
        }
    }
    let (array, failures) = evaluate(arg, batch)?;
    Ok((ColumnarValue::Array(array), failures))
}

/// Finds the rows of `batch` for which `expr` fails, and evaluates `expr` for the other rows.
fn recover(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<(ArrayRef, Failures)> {
    let (expr, batch) = narrowed(expr, batch)?;
    if batch.num_columns() > 0 || is_volatile(&expr) {
        return halve(&expr, &compact_batch(&batch)?);
    }
    // An expression that reads no column has the same value in every row.
    let (value, failures) = halve(&expr, &batch.slice(0, 1))?;
    let rows = batch.num_rows();
    let first = UInt64Array::from(vec![0; rows]);
    let failure = failures.into_values().next();
    let failures = failure
        .iter()
        .flat_map(|why| (0..rows).map(|row| (row, why.clone())));
    Ok((take(&value, &first, None)?, failures.collect()))
}

/// Returns the indices of the columns that `expr` reads, in the order in which `expr` names them.
pub(super) fn columns_read(expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let mut columns = Vec::new();
    let mut pending = vec![expr];
    while let Some(expr) = pending.pop() {
        match expr.downcast_ref::<Column>() {
            Some(column) if !columns.contains(&column.index()) => columns.push(column.index()),
            _ => pending.extend(expr.children().into_iter().rev()),
        }
    }
    columns
}

/// Returns `batch` with only the columns that `expr` reads, and `expr` with the new indices of
/// these columns.
fn narrowed(
    expr: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
) -> Result<(Arc<dyn PhysicalExpr>, RecordBatch)> {
    let read = columns_read(expr);
    let moved = Arc::clone(expr).transform_up(|e| {
        let Some(column) = e.downcast_ref::<Column>() else {
            return Ok(Transformed::no(e));
        };
        let Some(place) = read.iter().position(|index| *index == column.index()) else {
            return internal_err!("an expression reads a column that it does not name");
        };
        let moved: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), place));
        Ok(Transformed::yes(moved))
    })?;
    Ok((moved.data, batch.project(&read)?))
}

/// Evaluates `expr` over `batch`, which is compact. On failure, does the same for each half of
/// `batch`, down to single rows.
fn halve(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<(ArrayRef, Failures)> {
    let (operator, cause) = match attempt(expr, batch) {
        Ok(evaluated) => return Ok(evaluated),
        Err(Failed::Run(error)) => return Err(error),
        Err(Failed::Rows { operator, cause }) => (operator, cause),
    };
    let data_type = expr.data_type(batch.schema_ref())?;
    let rows = batch.num_rows();
    if rows <= 1 {
        let operator = operator.unwrap_or_else(|| culprit(expr, batch, &cause));
        let cause = bounded(cause);
        let failures = (0..rows).map(|row| (row, (operator.clone(), cause.clone())));
        return Ok((new_null_array(&data_type, rows), failures.collect()));
    }
    let half = rows / 2;
    let part = |start, length| halve(expr, &compact_batch(&batch.slice(start, length))?);
    let (first, mut failures) = part(0, half)?;
    let (second, of_second) = part(half, rows - half)?;
    let of_second = of_second.into_iter();
    failures.extend(of_second.map(|(row, why)| (row + half, why)));
    Ok((concatenated(&[&first, &second])?, failures))
}

/// If the value of a row can cause `error`, returns the failed operator (if `error` names one) and
/// the cause. Any other error is returned as `Err`. Kernels report bad values as errors of every
/// kind, but never as a lack of machine resources.
fn row_cause(error: DataFusionError) -> Result<(Option<String>, String)> {
    match error {
        DataFusionError::External(source) => match source.downcast::<RowFailure>() {
            Ok(failure) => Ok((Some(failure.operator), failure.cause)),
            Err(source) => external_cause(source),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            row_cause(*inner)
        }
        DataFusionError::Execution(cause)
        | DataFusionError::Plan(cause)
        | DataFusionError::NotImplemented(cause) => Ok((None, cause)),
        DataFusionError::Internal(cause) => Ok((None, format!("internal error: {cause}"))),
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

/// Does the work of [`row_cause`] for `source`, an error of another library, such as an invalid
/// pattern. The error counts as the error of a row, unless it is an I/O error, a [`RunFailure`], or
/// says that rows do not fit into one array.
fn external_cause(
    source: Box<dyn std::error::Error + Send + Sync>,
) -> Result<(Option<String>, String)> {
    if source.is::<Oversized>() || source.is::<OversizedBatch>() || source.is::<std::io::Error>() {
        return Err(DataFusionError::External(source));
    }
    let source = match source.downcast::<RunFailure>() {
        Ok(run) => return Err(run.0),
        Err(source) => source,
    };
    match source.downcast::<DataFusionError>() {
        Ok(inner) => row_cause(*inner),
        Err(source) => Ok((None, source.to_string())),
    }
}

/// Returns the name of the innermost operator in `expr` that fails with `cause` over `batch`, which
/// has one row. The name contains no operands, because the columns of operands depend on the plan.
fn culprit(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch, cause: &str) -> String {
    let same = |error| matches!(row_cause(error), Ok((_, inner)) if inner == cause);
    let inner = expr
        .children()
        .into_iter()
        .find(|child| value_of(child, batch).is_err_and(same));
    if let Some(inner) = inner {
        return culprit(inner, batch, cause);
    }
    let expr = uncleared(expr);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{Array, AsArray, BinaryArray, Int64Array};
    use arrow::datatypes::{DataType, Int64Type};
    use datafusion::common::exec_err;
    use datafusion::logical_expr::{Volatility, create_udf};
    use datafusion::physical_expr::expressions::{cast, col, in_list};

    use super::*;
    use crate::fragment::concat::is_oversized;

    type Kernel = fn(&Int64Array) -> Result<()>;

    /// Returns a call of a function that runs `kernel` on column `x` and returns `x` if `kernel`
    /// succeeds. Also returns a counter of the rows with which the function was called.
    fn call(kernel: Kernel, batch: &RecordBatch) -> (Arc<dyn PhysicalExpr>, Arc<AtomicUsize>) {
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let function = move |args: &[ColumnarValue]| {
            let values = args[0].to_array(1)?;
            count.fetch_add(values.len(), Ordering::Relaxed);
            kernel(values.as_primitive::<Int64Type>())?;
            Ok(args[0].clone())
        };
        let int = || DataType::Int64;
        let kind = Volatility::Immutable;
        let udf = create_udf("kernel", vec![int()], int(), kind, Arc::new(function));
        let schema = batch.schema();
        let args = vec![col("x", &schema).unwrap()];
        let options = Arc::new(ConfigOptions::default());
        let call = ScalarFunctionExpr::try_new(Arc::new(udf), args, &schema, options);
        (Arc::new(call.unwrap()), seen)
    }

    fn numbers(rows: i64) -> RecordBatch {
        let numbers = Int64Array::from_iter_values(0..rows);
        RecordBatch::try_from_iter([("x", Arc::new(numbers) as ArrayRef)]).unwrap()
    }

    #[test]
    fn a_panic_is_an_error_of_its_row() {
        let batch = numbers(100);
        let (expr, _) = call(
            |x| match x.iter().flatten().find(|x| x % 40 == 7) {
                Some(x) => std::panic::panic_any(format!("no {x}")),
                None => Ok(()),
            },
            &batch,
        );
        let (values, failures) = evaluate(&expr, &batch).unwrap();
        assert_eq!(failures.keys().copied().collect::<Vec<_>>(), [7, 47, 87]);
        assert_eq!(
            failures[&47],
            ("kernel".to_owned(), "it panicked: no 47".to_owned())
        );
        assert_eq!(values.null_count(), 3);
        assert_eq!(values.as_primitive::<Int64Type>().value(99), 99);
    }

    #[test]
    fn one_bad_row_costs_a_few_evaluations_of_the_batch() {
        let batch = numbers(1 << 14);
        let (expr, seen) = call(
            |x| {
                if x.iter().flatten().any(|x| x == 9_999) {
                    exec_err!("bad")
                } else {
                    Ok(())
                }
            },
            &batch,
        );
        let (_, failures) = evaluate(&expr, &batch).unwrap();
        assert_eq!(failures.into_keys().collect::<Vec<_>>(), [9_999]);
        assert!(seen.load(Ordering::Relaxed) < 5 << 14);
    }

    #[test]
    fn a_lack_of_resources_is_not_an_error_of_a_row() {
        let batch = numbers(8);
        let (expr, _) = call(
            |_| Err(DataFusionError::ResourcesExhausted("memory".to_owned())),
            &batch,
        );
        assert!(evaluate(&expr, &batch).is_err());
        let too_long = OversizedBatch {
            function: "repeat".to_owned(),
            rows: 8,
        };
        assert!(is_oversized(&DataFusionError::External(Box::new(too_long))));
    }

    #[test]
    fn a_large_constant_is_not_repeated_for_more_rows_than_fit_into_a_column() {
        let text = "x".repeat(1 << 20);
        let constant: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(text.into()));
        let error = evaluate(&constant, &numbers(4_096)).unwrap_err();
        assert!(is_oversized(&error), "{error}");
        assert_eq!(evaluate(&constant, &numbers(2)).unwrap().0.len(), 2);
        // An IN list with many values is allowed, because these values are not repeated for each
        // row.
        let batch = numbers(16_384);
        let schema = batch.schema();
        let ids = (0..10_000_i64).map(|id| Arc::new(Literal::new(id.into())) as _);
        let found = in_list(col("x", &schema).unwrap(), ids.collect(), &false, &schema).unwrap();
        assert_eq!(
            evaluate(&found, &batch)
                .unwrap()
                .0
                .as_boolean()
                .true_count(),
            10_000
        );
    }

    #[test]
    fn results_that_do_not_fit_together_are_not_allocated() {
        let state = datafusion::prelude::SessionContext::new().state();
        let functions = state.scalar_functions().values().cloned();
        let mut guarded = forebay_udfs::guarded_functions(functions).into_iter();
        let repeat = guarded
            .find(|function| function.name() == "repeat")
            .unwrap();
        let of = |times: i64| {
            let batch = numbers(16);
            let args: Vec<Arc<dyn PhysicalExpr>> = vec![
                cast(
                    col("x", &batch.schema()).unwrap(),
                    &batch.schema(),
                    DataType::Utf8,
                )
                .unwrap(),
                Arc::new(Literal::new(times.into())),
            ];
            let options = Arc::new(ConfigOptions::default());
            let repeat = Arc::clone(&repeat);
            let call = ScalarFunctionExpr::try_new(repeat, args, &batch.schema(), options);
            evaluate(&(Arc::new(call.unwrap()) as Arc<dyn PhysicalExpr>), &batch)
        };
        let error = of(130_000_000).unwrap_err();
        assert!(is_oversized(&error), "{error}");
        let (_, failures) = of(3).unwrap();
        assert!(failures.is_empty());
        let (_, failures) = of(300_000_000).unwrap();
        assert_eq!(failures.len(), 16);
    }

    #[test]
    fn an_error_of_another_library_is_an_error_of_its_row() {
        let batch = numbers(8);
        let (expr, _) = call(
            |x| {
                if x.iter().flatten().any(|x| x == 5) {
                    Err(DataFusionError::External("no such pattern".into()))
                } else {
                    Ok(())
                }
            },
            &batch,
        );
        let (_, failures) = evaluate(&expr, &batch).unwrap();
        assert_eq!(failures[&5].1, "no such pattern");
        assert_eq!(failures.len(), 1);
    }

    #[test]
    fn no_function_is_called_over_no_rows() {
        let batch = numbers(0);
        let (expr, seen) = call(|_| exec_err!("called"), &batch);
        let (values, failures) = evaluate(&expr, &batch).unwrap();
        assert!(values.is_empty() && failures.is_empty());
        assert_eq!(seen.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn halves_that_do_not_fit_together_are_not_an_error_of_a_row() {
        // 200 values do not fit into a dictionary with 8-bit keys, but 100 values do.
        let batch = numbers(200);
        let schema = batch.schema();
        let keys = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int64));
        let expr = cast(col("x", &schema).unwrap(), &schema, keys).unwrap();
        let error = evaluate(&expr, &batch).unwrap_err();
        assert!(is_oversized(&error), "{error}");
        let (half, failures) = evaluate(&expr, &batch.slice(100, 100)).unwrap();
        assert_eq!((half.len(), failures.len()), (100, 0));
    }

    #[test]
    fn a_bad_row_outside_a_slice_fails_no_row_in_it() {
        let bytes = BinaryArray::from_vec(vec![b"a".as_slice(), b"\xff", b"c", b"d"]);
        let batch = RecordBatch::try_from_iter([("x", Arc::new(bytes) as ArrayRef)]).unwrap();
        let schema = batch.schema();
        let expr = cast(col("x", &schema).unwrap(), &schema, DataType::Utf8).unwrap();
        let (values, failures) = evaluate(&expr, &batch).unwrap();
        assert_eq!(failures.into_keys().collect::<Vec<_>>(), [1]);
        let values = values.as_string::<i32>().iter().collect::<Vec<_>>();
        assert_eq!(values, [Some("a"), None, Some("c"), Some("d")]);
        let (_, failures) = evaluate(&expr, &batch.slice(2, 2)).unwrap();
        assert!(failures.is_empty());
    }
}
