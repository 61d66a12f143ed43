//! The length of a sequence, as `PACK` and `BATCH BY TOKENS` count it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Name of the function that computes lengths.
const LENGTH: &str = "__length_of";

/// Returns an expression for the length of a sequence: the number of elements of a list, or the
/// value of a whole number. The length of null is 0.
pub fn length_of(sequence: Expr) -> Expr {
    length_function().call(vec![sequence])
}

/// Returns the function that [`length_of`] calls. It is not among the functions that SQL can call.
pub fn length_function() -> Arc<ScalarUDF> {
    LengthOf::udf()
}

/// True if values of this type have a length.
pub fn has_length(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)
    ) || data_type.is_integer()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LengthOf {
    signature: Signature,
}

impl LengthOf {
    fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { signature }))
    }
}

impl ScalarUDFImpl for LengthOf {
    fn name(&self) -> &str {
        LENGTH
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [of] if has_length(of) => Ok(DataType::UInt32),
            _ => plan_err!("expected a list or a whole number, found {types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(values) = args.args.first() else {
            return plan_err!("{LENGTH} takes one argument");
        };
        let values = values.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(lengths(&values)?)))
    }
}

fn lengths(values: &ArrayRef) -> Result<UInt32Array> {
    let rows = 0..values.len();
    let length = |row: usize, length: usize| {
        let length = if values.is_valid(row) { length } else { 0 };
        Ok(length as u32)
    };
    match values.data_type() {
        DataType::List(_) => {
            let list = values.as_list::<i32>();
            rows.map(|row| length(row, list.value_length(row) as usize))
                .collect()
        }
        DataType::LargeList(_) => {
            let list = values.as_list::<i64>();
            let of_row = |row: usize| match u32::try_from(list.value_length(row)) {
                Ok(n) => length(row, n as usize),
                Err(_) => exec_err!(
                    "a sequence of {} elements is too long",
                    list.value_length(row)
                ),
            };
            rows.map(of_row).collect()
        }
        DataType::FixedSizeList(_, size) => rows.map(|row| length(row, *size as usize)).collect(),
        other if other.is_integer() => {
            let wide = arrow::compute::cast(values, &DataType::UInt64)?;
            let wide = wide.as_primitive::<UInt64Type>();
            let of_row = |row: usize| match u32::try_from(wide.value(row)) {
                _ if values.is_null(row) => Ok(0),
                Ok(n) if wide.is_valid(row) => Ok(n),
                _ => exec_err!("a number of elements must be between 0 and {}", u32::MAX),
            };
            rows.map(of_row).collect()
        }
        other => plan_err!("{other} has no length"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn lists_and_counts_have_lengths() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None, Some(3)]),
            None,
            Some(vec![]),
        ]);
        let list: ArrayRef = Arc::new(list);
        assert_eq!(lengths(&list).unwrap(), UInt32Array::from(vec![3, 0, 0]));
        let sliced = list.slice(1, 2);
        assert_eq!(lengths(&sliced).unwrap(), UInt32Array::from(vec![0, 0]));
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
        assert_eq!(lengths(&counts).unwrap(), UInt32Array::from(vec![7, 0]));
    }

    #[test]
    fn negative_counts_are_refused() {
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![1, -1]));
        assert!(lengths(&counts).is_err());
    }
}
