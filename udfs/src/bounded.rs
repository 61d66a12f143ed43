//! Functions whose results are as large as an argument says, kept within a limit.
//!
//! `lpad('a', 11000000000)` asks for 11 GB in one value. The size of each row's result is computed from its arguments
//! before anything is allocated: a result above the limit is an error of its row, and rows whose results do not
//! fit into one column together are computed apart.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Largest result of one call for one row, in bytes. It decides which rows fail, so it is part of what these functions
/// mean: another limit is another version of them.
pub const MAX_VALUE_BYTES: u64 = 1 << 28;

/// Largest result of one call for a batch, in bytes: what the offsets of a text column can address.
pub const MAX_BATCH_BYTES: u64 = i32::MAX as u64;

/// Results for some rows that do not fit into one column together. Not the fault of any row.
#[derive(Debug, thiserror::Error)]
#[error("{function}: the results for {rows} rows take more than 2 GiB together")]
pub struct OversizedBatch {
    /// The function, or the constant that is repeated.
    pub function: String,
    /// Number of rows.
    pub rows: usize,
}

/// Bytes of the result for a row, from the arguments; 0 where the function itself refuses them.
type ResultSize = fn(&Arguments, usize) -> Result<u64>;

/// The functions that are kept within the limit.
const BOUNDED: [(&str, ResultSize); 9] = [
    ("array_repeat", array_repeat),
    ("array_resize", array_resize),
    ("array_to_string", array_to_string),
    ("generate_series", series),
    ("lpad", pad),
    ("range", series),
    ("repeat", repeat),
    ("replace", replace),
    ("rpad", pad),
];

/// The functions of a session whose results are as large as an argument says, within the limit. They take the
/// places of those that `known` finds by name.
pub fn bounded_functions(known: impl Fn(&str) -> Option<Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let bounded = BOUNDED.iter().enumerate().filter_map(|(index, (name, _))| {
        let function = known(name)?;
        Some(Arc::new(ScalarUDF::new_from_impl(Bounded {
            function,
            index,
        })))
    });
    bounded.collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    function: Arc<ScalarUDF>,
    /// Its place among the bounded functions.
    index: usize,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.function.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<arrow::datatypes::FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.inner().coerce_types(types)
    }

    fn is_strict(&self) -> bool {
        self.function.inner().is_strict()
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.function.simplify(args, context)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (name, size) = BOUNDED[self.index];
        let arguments = Arguments::of(&args)?;
        let mut total = 0_u64;
        for row in 0..arguments.rows {
            let bytes = size(&arguments, row)?;
            if bytes > MAX_VALUE_BYTES {
                return exec_err!(
                    "{name}: the result takes {bytes} bytes, of which a value has {MAX_VALUE_BYTES} at most"
                );
            }
            total = total.saturating_add(bytes);
        }
        if total > MAX_BATCH_BYTES && arguments.rows > 1 {
            return Err(DataFusionError::External(Box::new(OversizedBatch {
                function: name.to_owned(),
                rows: arguments.rows,
            })));
        }
        self.function.invoke_with_args(args)
    }
}

/// The arguments of a call, by row.
struct Arguments {
    arrays: Vec<ArrayRef>,
    /// Rows of the batch; one where all arguments are constants.
    rows: usize,
}

impl Arguments {
    fn of(args: &ScalarFunctionArgs) -> Result<Self> {
        let is_constant = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
        let rows = match args.args.iter().all(is_constant) {
            true => 1,
            false => args.number_rows,
        };
        let arrays = args.args.iter().map(|arg| match arg {
            ColumnarValue::Array(array) => Ok(Arc::clone(array)),
            ColumnarValue::Scalar(value) => value.to_array(),
        });
        Ok(Self {
            arrays: arrays.collect::<Result<_>>()?,
            rows,
        })
    }

    /// An argument and the place of the row in it; `None` where it is absent or null.
    fn valid(&self, argument: usize, row: usize) -> Option<(&ArrayRef, usize)> {
        let array = self.arrays.get(argument)?;
        let row = if array.len() == 1 { 0 } else { row };
        (row < array.len() && array.is_valid(row)).then_some((array, row))
    }

    /// A whole number; `None` where it is absent, null or of another type.
    fn int(&self, argument: usize, row: usize) -> Option<i64> {
        let (array, row) = self.valid(argument, row)?;
        let array = array.as_primitive_opt::<Int64Type>()?;
        Some(array.value(row))
    }

    fn text(&self, argument: usize, row: usize) -> Option<&str> {
        let (array, row) = self.valid(argument, row)?;
        match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
            DataType::Utf8View => Some(array.as_string_view().value(row)),
            _ => None,
        }
    }

    /// Bytes of an argument's value; those of a null of its type where it is null.
    fn bytes(&self, argument: usize, row: usize) -> u64 {
        match self.valid(argument, row) {
            Some((array, row)) => value_bytes(array, row, 1),
            None => {
                let array = self.arrays.get(argument);
                array.map_or(8, |array| null_bytes(array.data_type()))
            }
        }
    }
}

/// Bytes of `rows` values of an array.
fn value_bytes(array: &ArrayRef, row: usize, rows: usize) -> u64 {
    if let Some(width) = array.data_type().primitive_width() {
        return (width as u64).saturating_mul(rows as u64);
    }
    let slice = array.slice(row, rows).to_data();
    slice.get_slice_memory_size().unwrap_or(usize::MAX) as u64
}

/// Bytes of a null: fixed sizes are taken up whatever is in them.
fn null_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeBinary(size) => u64::try_from(*size).unwrap_or(0),
        DataType::FixedSizeList(item, size) => {
            let size = u64::try_from(*size).unwrap_or(0);
            null_bytes(item.data_type()).saturating_mul(size)
        }
        DataType::Struct(fields) => fields
            .iter()
            .map(|field| null_bytes(field.data_type()))
            .fold(0, u64::saturating_add),
        other => other.primitive_width().unwrap_or(8) as u64,
    }
}

/// A count, of which a negative one is none.
fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn repeat(args: &Arguments, row: usize) -> Result<u64> {
    let (Some(text), Some(times)) = (args.text(0, row), args.int(1, row)) else {
        return Ok(0);
    };
    Ok(count(times).saturating_mul(text.len() as u64))
}

fn pad(args: &Arguments, row: usize) -> Result<u64> {
    let (Some(text), Some(length)) = (args.text(0, row), args.int(1, row)) else {
        return Ok(0);
    };
    let bytes = text.len() as u64;
    // No text has more characters than bytes.
    let missing = count(length).saturating_sub(text.chars().count() as u64);
    let fill = match args.arrays.len() {
        0..=2 => " ",
        _ => args.text(2, row).unwrap_or(""),
    };
    if missing == 0 || fill.is_empty() {
        return Ok(bytes);
    }
    let times = missing.div_ceil(fill.chars().count() as u64);
    Ok(bytes.saturating_add(times.saturating_mul(fill.len() as u64)))
}

fn replace(args: &Arguments, row: usize) -> Result<u64> {
    let text = (args.text(0, row), args.text(1, row), args.text(2, row));
    let (Some(text), Some(from), Some(to)) = text else {
        return Ok(0);
    };
    let bytes = text.len() as u64;
    let growth = (to.len() as u64).saturating_sub(from.len() as u64);
    let most = match from.len() {
        0 => bytes + 1,
        length => bytes / length as u64,
    };
    let size = |found: u64| bytes.saturating_add(found.saturating_mul(growth));
    if size(most) <= MAX_VALUE_BYTES {
        return Ok(size(most));
    }
    Ok(size(text.matches(from).count() as u64))
}

fn array_repeat(args: &Arguments, row: usize) -> Result<u64> {
    let Some(times) = args.int(1, row) else {
        return Ok(0);
    };
    Ok(match count(times) {
        0 => 0,
        times => times.saturating_mul(args.bytes(0, row).max(1)),
    })
}

fn array_resize(args: &Arguments, row: usize) -> Result<u64> {
    let (Some((list, at)), Some(size)) = (args.valid(0, row), args.int(1, row)) else {
        return Ok(0);
    };
    let Ok(size) = u64::try_from(size) else {
        return exec_err!("array_resize: the size {size} is negative");
    };
    let (length, item) = match list.data_type() {
        DataType::List(item) => (list.as_list::<i32>().value_length(at) as u64, item),
        DataType::LargeList(item) => (list.as_list::<i64>().value_length(at) as u64, item),
        _ => return Ok(0),
    };
    let fill = match args.arrays.len() {
        0..=2 => null_bytes(item.data_type()),
        _ => args.bytes(2, row),
    };
    let added = size.saturating_sub(length).saturating_mul(fill.max(1));
    Ok(added.saturating_add(value_bytes(list, at, 1)))
}

fn array_to_string(args: &Arguments, row: usize) -> Result<u64> {
    let (Some((list, at)), Some(delimiter)) = (args.valid(0, row), args.text(1, row)) else {
        return Ok(0);
    };
    let length = match list.data_type() {
        DataType::List(_) => list.as_list::<i32>().value_length(at) as u64,
        DataType::LargeList(_) => list.as_list::<i64>().value_length(at) as u64,
        DataType::FixedSizeList(_, size) => count(i64::from(*size)),
        _ => return Ok(0),
    };
    let null = args.text(2, row).map_or(0, str::len);
    Ok(length.saturating_mul((delimiter.len() + null) as u64))
}

/// Nanoseconds of a day.
const DAY: i128 = 86_400_000_000_000;

fn series(args: &Arguments, row: usize) -> Result<u64> {
    let Some(first) = args.arrays.first() else {
        return Ok(0);
    };
    let (values, width) = match first.data_type() {
        DataType::Int64 => (int_series(args, row), 8),
        DataType::Date32 | DataType::Date64 => (time_series(args, row, DAY)?, 4),
        DataType::Timestamp(..) => (time_series(args, row, 1)?, 8),
        _ => (0, 8),
    };
    Ok(values.saturating_mul(width))
}

/// Values between two whole numbers, one too many where the end is not among them.
fn int_series(args: &Arguments, row: usize) -> u64 {
    let bounds = match args.arrays.len() {
        1 => (Some(0), args.int(0, row), Some(1)),
        2 => (args.int(0, row), args.int(1, row), Some(1)),
        _ => (args.int(0, row), args.int(1, row), args.int(2, row)),
    };
    let (Some(start), Some(stop), Some(step)) = bounds else {
        return 0;
    };
    let is_ahead = if step > 0 {
        start <= stop
    } else {
        start >= stop
    };
    if step == 0 || !is_ahead {
        return 0;
    }
    (start.abs_diff(stop) / step.unsigned_abs()).saturating_add(1)
}

/// Values between two dates or times, at most: months are taken as 28 days.
fn time_series(args: &Arguments, row: usize, unit: i128) -> Result<u64> {
    let at = |argument: usize| -> Result<Option<i128>> {
        let Some((array, row)) = args.valid(argument, row) else {
            return Ok(None);
        };
        let value = array.slice(row, 1);
        let value = match unit {
            DAY => cast(&cast(&value, &DataType::Date32)?, &DataType::Int32)?,
            _ => cast(&value, &DataType::Timestamp(TimeUnit::Nanosecond, None))?,
        };
        let value = cast(&value, &DataType::Int64)?;
        let value = value.as_primitive::<Int64Type>().iter().next().flatten();
        Ok(value.map(|value| i128::from(value) * unit))
    };
    let step = args.valid(2, row).and_then(|(array, row)| {
        let steps = array.as_primitive_opt::<IntervalMonthDayNanoType>()?;
        Some(steps.value(row))
    });
    let (Some(start), Some(stop), Some(step)) = (at(0)?, at(1)?, step) else {
        return Ok(0);
    };
    let parts = [
        i128::from(step.months) * 28 * DAY,
        i128::from(step.days) * DAY,
        i128::from(step.nanoseconds),
    ];
    if parts.iter().any(|part| *part < 0) && parts.iter().any(|part| *part > 0) {
        // `1 month -31 days` need not move at all.
        return exec_err!("a step has parts of one sign, found {step:?}");
    }
    let step: i128 = parts.iter().sum();
    let is_ahead = if step > 0 {
        start <= stop
    } else {
        start >= stop
    };
    if step == 0 || !is_ahead {
        return Ok(0);
    }
    let values = (start - stop).abs() / step.abs() + 1;
    Ok(u64::try_from(values).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use arrow::array::{RecordBatch, RecordBatchOptions};
    use arrow::datatypes::Schema;
    use datafusion::common::DFSchema;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// Evaluates a constant expression of SQL with the bounded functions.
    fn outcome(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new();
        let state = context.state();
        for function in bounded_functions(|name| state.scalar_functions().get(name).cloned()) {
            context.register_udf(function.as_ref().clone());
        }
        let schema = DFSchema::empty();
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
        let expr = context.parse_sql_expr(sql, &schema);
        let value = expr.and_then(|expr| {
            let physical = context.create_physical_expr(expr, &schema)?;
            physical.evaluate(&row?)?.into_array(1)
        });
        let value = value.map_err(|e| e.to_string())?;
        let text = arrow::util::display::array_value_to_string(&value, 0);
        text.map_err(|e| e.to_string())
    }

    #[test]
    fn a_result_above_the_limit_is_an_error_before_it_is_allocated() {
        let huge = [
            "repeat('ab', 9000000000)",
            "lpad('a', 2000000000)",
            "rpad('a', 400000000, 'é')",
            "array_repeat(1, 400000000)",
            "array_repeat([1, 2], 400000000)",
            "array_resize([1], 400000000)",
            "list_resize([1], 400000000, 7)",
            "array_resize([1], -4)",
            "range(0, 300000000)",
            "range(300000000, 0, -1)",
            "generate_series(-9223372036854775808, 9223372036854775807)",
            "generate_series(DATE '2000-01-01', DATE '2000-01-02', INTERVAL '1 month -31 days')",
            "range(TIMESTAMP '2000-01-01', TIMESTAMP '2001-01-01', INTERVAL '1 millisecond')",
            "replace(repeat('a', 100000), 'a', repeat('b', 100000))",
            "replace(repeat('a', 100000), '', repeat('b', 100000))",
            "array_to_string(array_repeat(1, 100000), repeat('b', 100000))",
        ];
        for sql in huge {
            let error = outcome(sql).unwrap_err();
            let is_ours = ["at most", "negative", "one sign"];
            assert!(
                is_ours.iter().any(|text| error.contains(text)),
                "{sql}: {error}"
            );
        }
    }

    #[test]
    fn results_within_the_limit_are_those_of_the_functions() {
        let small = [
            ("repeat('ab', 3)", "ababab"),
            ("repeat('ab', -3)", ""),
            ("lpad('ab', -1)", ""),
            ("lpad('ab', 5, 'é')", "éééab"),
            ("array_repeat(1, 2)", "[1, 1]"),
            ("array_repeat(1, -2)", "[]"),
            ("array_resize([1, 2], 1)", "[1]"),
            ("array_resize(NULL::BIGINT[], -4)", ""),
            ("range(5, 1, -2)", "[5, 3]"),
            ("range(300000000, 0)", "[]"),
            (
                "range(DATE '2000-01-01', DATE '2000-03-01', INTERVAL '1 month')",
                "[2000-01-01, 2000-02-01]",
            ),
            ("replace('aXa', 'a', 'bb')", "bbXbb"),
            ("array_to_string([1, 2], '-')", "1-2"),
        ];
        for (sql, expected) in small {
            assert_eq!(outcome(sql).as_deref(), Ok(expected), "{sql}");
        }
    }
}
