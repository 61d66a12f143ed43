//! Wraps functions of DataFusion whose behaviour could exhaust memory or depend on other rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use crate::bounded;

/// Functions whose result for a null argument depends on other rows, or on the value that the array
/// stores in the slot of the null. `array_has_all` and `array_has_any` return null for a null list
/// among other rows, but false or true for a batch of only a null list. `date_trunc` also truncates
/// the value in the slot of a null, and may fail on that value.
const OVER_VALID_ROWS: [&str; 3] = ["array_has_all", "array_has_any", "date_trunc"];

/// Returns guarded versions of those functions of a session that need a guard. Each guarded version
/// replaces the function of the same name.
pub fn guarded_functions(functions: impl Iterator<Item = Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
    let guarded = functions.filter_map(|function| {
        let guard = match bounded::place(function.name()) {
            Some(place) => ArgumentGuard::Size(place),
            None if OVER_VALID_ROWS.contains(&function.name()) => ArgumentGuard::Nulls,
            None => return None,
        };
        Some(Arc::new(ScalarUDF::new_from_impl(Guarded {
            function,
            guard,
        })))
    });
    guarded.collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Guarded {
    function: Arc<ScalarUDF>,
    guard: ArgumentGuard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ArgumentGuard {
    /// The sizes of the results are checked before the function is called. Holds the function's
    /// index in `bounded::BOUNDED`.
    Size(usize),
    /// The function is called only for rows without a null argument; the result of any other row is
    /// null.
    Nulls,
}

impl ScalarUDFImpl for Guarded {
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

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
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
        match self.guard {
            ArgumentGuard::Size(place) => self
                .function
                .invoke_with_args(bounded::measured(place, args)?),
            ArgumentGuard::Nulls => over_valid_rows(args, |valid_args| {
                self.function.invoke_with_args(valid_args)
            }),
        }
    }
}

/// Evaluates a function for the rows without a null argument; the result of any other row is null.
fn over_valid_rows(
    mut args: ScalarFunctionArgs,
    function: impl Fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
) -> Result<ColumnarValue> {
    let rows = args.number_rows;
    let mut nulls = None;
    for arg in &args.args {
        nulls = match arg {
            ColumnarValue::Array(array) => {
                NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref())
            }
            ColumnarValue::Scalar(value) if value.is_null() => Some(NullBuffer::new_null(rows)),
            ColumnarValue::Scalar(_) => nulls,
        };
    }
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else {
        return function(args);
    };
    let valid: UInt64Array = nulls.valid_indices().map(|row| row as u64).collect();
    if valid.is_empty() {
        let null = new_null_array(args.return_field.data_type(), rows);
        return Ok(ColumnarValue::Array(null));
    }
    for arg in &mut args.args {
        if let ColumnarValue::Array(array) = arg {
            *array = take(array, &valid, None)?;
        }
    }
    args.number_rows = valid.len();
    let values: ArrayRef = function(args)?.into_array(valid.len())?;
    let places = nulls.iter().scan(0_u64, |next, is_valid| {
        let place = *next;
        *next += u64::from(is_valid);
        Some(is_valid.then_some(place))
    });
    let places: UInt64Array = places.collect();
    Ok(ColumnarValue::Array(take(&values, &places, None)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, TimestampNanosecondArray};
    use arrow::datatypes::{Field, TimestampNanosecondType};
    use datafusion::common::ScalarValue;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn rows_with_a_null_argument_are_null_without_a_call() {
        let state = SessionContext::new().state();
        let date_trunc = state.scalar_functions().get("date_trunc").cloned();
        let guarded = guarded_functions(date_trunc.into_iter());
        let [date_trunc] = guarded.as_slice() else {
            unreachable!("one function has one guard");
        };
        let invoke = |unit: ColumnarValue| {
            // The value in the slot of the null is outside the range of times that can be
            // truncated.
            let times = vec![i64::MIN, 90_000_000_000, 3_600_000_000_001];
            let nulls = NullBuffer::from(vec![false, true, true]);
            let times = TimestampNanosecondArray::new(times.into(), Some(nulls));
            let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
            let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, None);
            let invoked = date_trunc.invoke_with_args(ScalarFunctionArgs {
                args: vec![unit, ColumnarValue::Array(Arc::new(times))],
                arg_fields: vec![field("unit", DataType::Utf8), field("time", time.clone())],
                number_rows: 3,
                return_field: field("truncated", time),
                config_options: Arc::default(),
            });
            let truncated = invoked.unwrap().into_array(3).unwrap();
            let truncated = truncated.as_primitive::<TimestampNanosecondType>();
            truncated.iter().collect::<Vec<_>>()
        };
        let unit = |unit: Option<&str>| ColumnarValue::Scalar(ScalarValue::from(unit));
        let expected = [None, Some(60_000_000_000), Some(3_600_000_000_000)];
        assert_eq!(invoke(unit(Some("minute"))), expected);
        assert_eq!(invoke(unit(None)), [None; 3]);
    }
}
