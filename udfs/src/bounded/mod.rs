//! Limits the results of functions whose arguments determine the size of the result.
//!
//! `lpad('a', 11000000000)` requests 11 GB in one value. The size of each row's result is computed
//! from the row's arguments before anything is allocated. A result above the limit is an error of
//! that row. If the results of a batch do not fit into one column, the batch is computed in smaller
//! batches.

mod arguments;
mod limits;
mod list;
mod series;
mod text;

use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::logical_expr::ScalarFunctionArgs;

use self::arguments::Arguments;
pub use self::limits::{MAX_BATCH_BYTES, MAX_VALUE_BYTES};
use self::list::{array_repeat, array_resize, array_to_string};
use self::series::series;
use self::text::{pad, regexp_replace, repeat, replace, with_own_lengths};

/// The error of a batch whose results do not fit into one column. No single row is at fault.
#[derive(Debug, thiserror::Error)]
#[error("{function}: the results for {rows} rows take more than 2 GiB together")]
pub struct OversizedBatch {
    /// Name of the function, or of the repeated constant.
    pub function: String,
    /// Number of rows of the batch.
    pub rows: usize,
}

/// Computes the size, in bytes, of a row's result from the arguments; 0 if the function itself
/// raises an error for these arguments.
type ResultSize = fn(&Arguments, usize) -> Result<u64>;

/// The functions whose results are limited, each with the Rust function that computes the size of a
/// result.
const BOUNDED: [(&str, ResultSize); 10] = [
    ("array_repeat", array_repeat),
    ("array_resize", array_resize),
    ("array_to_string", array_to_string),
    ("generate_series", series),
    ("lpad", pad),
    ("range", series),
    ("regexp_replace", regexp_replace),
    ("repeat", repeat),
    ("replace", replace),
    ("rpad", pad),
];

/// Returns the index of the function `name` in [`BOUNDED`]; `None` if the function's results are
/// not limited.
pub(crate) fn place(name: &str) -> Option<usize> {
    BOUNDED.iter().position(|(bounded, _)| *bounded == name)
}

/// Checks a call of the function at index `place` of [`BOUNDED`] against the limits, and returns
/// the arguments with which to call the function.
///
/// # Errors
/// Fails if the result of a row has more than [`MAX_VALUE_BYTES`] bytes, or if the results of all
/// rows do not fit into one column.
pub(crate) fn measured(place: usize, args: ScalarFunctionArgs) -> Result<ScalarFunctionArgs> {
    let (name, size) = BOUNDED[place];
    let arguments = Arguments::of(&args)?;
    let mut total = 0_u64;
    for row in 0..arguments.rows {
        let bytes = size(&arguments, row)?;
        if bytes > MAX_VALUE_BYTES {
            return exec_err!(
                "{name}: the result takes {bytes} bytes, but a value may have at most {MAX_VALUE_BYTES}"
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
    match name {
        "lpad" | "rpad" => with_own_lengths(args, &arguments),
        _ => Ok(args),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    };
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::ColumnarValue;
    use datafusion::prelude::SessionContext;

    use std::sync::Arc;

    use super::*;
    use crate::guarded_functions;

    /// Evaluates a constant SQL expression with the bounded functions.
    fn outcome(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new();
        let state = context.state();
        for function in guarded_functions(state.scalar_functions().values().cloned()) {
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
            "array_to_string([range(0, 100000)], repeat('b', 100000))",
            "array_to_string(arrow_cast(array_repeat(repeat('a', 100000), 10000), 'List(Dictionary(Int32, Utf8))'), '')",
            "regexp_replace(repeat('a', 100000), 'a', repeat('b', 100000), 'g')",
            "regexp_replace(repeat('A', 100000), 'a', repeat('b', 100000), 'gi')",
        ];
        for sql in huge {
            let error = outcome(sql).unwrap_err();
            let is_ours = ["at most", "negative", "same sign"];
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
            ("array_to_string([[1, 2], [], [3]], '-')", "1-2-3"),
            ("lpad('ab', 2000000000, '')", "ab"),
            ("rpad('abc', 2, '')", "ab"),
            ("lpad(NULL, 2000000000)", ""),
            ("regexp_replace('aXa', '(a)', '<\\1$1>', 'g')", "<aa>X<aa>"),
            (
                "regexp_replace(repeat('x', 100000), 'a', repeat('b', 100000), 'g') = repeat('x', 100000)",
                "true",
            ),
            ("regexp_replace('aa', 'a', 'b')", "ba"),
        ];
        for (sql, expected) in small {
            assert_eq!(outcome(sql).as_deref(), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn only_lengths_that_results_have_are_allocated() {
        let context = SessionContext::new();
        let state = context.state();
        let functions = guarded_functions(state.scalar_functions().values().cloned());
        let padded = functions.into_iter().filter(|f| f.name().ends_with("pad"));
        for function in padded.collect::<Vec<_>>() {
            let texts = StringArray::from(vec![Some("ab"), None, Some("abc"), Some("d")]);
            let fill = StringArray::from(vec![Some(""), Some("x"), None, Some("x")]);
            let lengths = Int64Array::from(vec![2_000_000_000, 2_000_000_000, 2_000_000_000, -7]);
            let columns: [ArrayRef; 3] = [Arc::new(texts), Arc::new(lengths), Arc::new(fill)];
            let fields = columns.iter().zip(["text", "length", "fill"]);
            let fields =
                fields.map(|(c, name)| Arc::new(Field::new(name, c.data_type().clone(), true)));
            let invoked = function.invoke_with_args(ScalarFunctionArgs {
                arg_fields: fields.collect(),
                args: columns.into_iter().map(ColumnarValue::Array).collect(),
                number_rows: 4,
                return_field: Arc::new(Field::new("padded", DataType::Utf8, true)),
                config_options: Arc::default(),
            });
            let padded = invoked.unwrap().into_array(4).unwrap();
            let padded = padded.as_string::<i32>().iter().collect::<Vec<_>>();
            assert_eq!(
                padded,
                [Some("ab"), None, None, Some("")],
                "{}",
                function.name()
            );
        }
    }
}
