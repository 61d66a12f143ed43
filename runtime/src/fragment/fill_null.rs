//! Replacement of nulls in numbers, dates and times by a value.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, downcast_primitive_array,
};
use arrow::util::bit_iterator::BitIndexIterator;
use datafusion::common::{Result, ScalarValue, internal_err};

/// Returns `array` with `fill` in the place of nulls. Both have the same primitive type.
pub(super) fn filled(array: &ArrayRef, fill: &ScalarValue) -> Result<ArrayRef> {
    if array.null_count() == 0 {
        return Ok(Arc::clone(array));
    }
    let fill = fill.to_array()?;
    let array = array.as_ref();
    let filled = downcast_primitive_array!(
        array => overwritten(array, fill.as_ref()),
        _ => None
    );
    match filled {
        Some(filled) => Ok(filled),
        None => internal_err!(
            "nulls of {} are filled with a {}",
            array.data_type(),
            fill.data_type()
        ),
    }
}

/// Returns a copy of `array` whose nulls are overwritten by the only value of `fill`; `None` if the
/// types differ.
fn overwritten<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    fill: &dyn Array,
) -> Option<ArrayRef> {
    let fill = fill.as_primitive_opt::<T>()?.value(0);
    let mut values = array.values().to_vec();
    if let Some(nulls) = array.nulls() {
        let missing = !nulls.inner();
        for row in BitIndexIterator::new(missing.values(), missing.offset(), missing.len()) {
            values[row] = fill;
        }
    }
    let filled = PrimitiveArray::<T>::new(values.into(), None);
    Some(Arc::new(filled.with_data_type(array.data_type().clone())))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Int64Type, TimeUnit};
    use datafusion::common::DFSchema;
    use datafusion::functions::expr_fn::coalesce;
    use datafusion::logical_expr::{Expr, cast, col, lit, when};

    use super::super::compile::compile_expr;
    use super::super::evaluate::evaluate;
    use super::*;

    fn batch() -> RecordBatch {
        let whole = Int64Array::from(vec![Some(9), Some(7), None, Some(-3), None, None, Some(2)]);
        let nulls = Int64Array::from(vec![None; 6]);
        let small = Int32Array::from(vec![Some(4), None, Some(5), None, None, Some(6)]);
        let texts = StringArray::from(vec![Some("a"), None, None, None, None, None]);
        RecordBatch::try_from_iter([
            ("a", Arc::new(whole.slice(1, 6)) as ArrayRef),
            ("n", Arc::new(nulls)),
            ("s", Arc::new(small)),
            ("t", Arc::new(texts)),
        ])
        .unwrap()
    }

    /// Returns the values of `expr`, and true if a `coalesce` in it is computed without a CASE.
    fn computed(expr: &Expr) -> (ArrayRef, bool) {
        let batch = batch();
        let schema = DFSchema::try_from(batch.schema().as_ref().clone()).unwrap();
        let compiled = compile_expr(expr, schema).unwrap();
        let (values, failures) = evaluate(&compiled, &batch).unwrap();
        assert!(failures.is_empty());
        (values, compiled.to_string().contains("coalesce("))
    }

    #[test]
    fn nulls_are_replaced_and_other_values_stay() {
        let of = |expr: Expr| {
            let (values, is_filled) = computed(&expr);
            assert!(is_filled, "{expr}");
            assert_eq!(values.null_count(), 0);
            values.as_primitive::<Int64Type>().values().to_vec()
        };
        let filled = of(coalesce(vec![col("a"), lit(5_i64)]));
        assert_eq!(filled, [7, 5, -3, 5, 5, 2]);
        assert_eq!(of(coalesce(vec![col("n"), lit(1_i64)])), [1; 6]);
        let twice = coalesce(vec![col("a") + col("a"), lit(0_i64)]);
        assert_eq!(of(twice), [14, 0, -6, 0, 0, 4]);
    }

    #[test]
    fn all_primitive_types_are_filled_as_a_case_fills_them() {
        let batch = batch();
        let types = [
            DataType::Int8,
            DataType::UInt16,
            DataType::Float32,
            DataType::Float64,
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Microsecond, Some("+02:00".into())),
            DataType::Duration(TimeUnit::Second),
            DataType::Decimal128(12, 2),
            DataType::Decimal256(40, 3),
        ];
        for data_type in types {
            let of = cast(
                cast(col("a") * col("a"), DataType::Int32),
                data_type.clone(),
            );
            let fill = ScalarValue::Int32(Some(1)).cast_to(&data_type).unwrap();
            let filled = coalesce(vec![of.clone(), lit(fill.clone())]);
            // A CASE of another form has the same values.
            let case = when(of.clone().is_null(), lit(fill)).otherwise(of).unwrap();
            let (values, is_filled) = computed(&filled);
            let (expected, is_other_filled) = computed(&case);
            assert!(is_filled && !is_other_filled, "{data_type}");
            assert_eq!(&values, &expected);
            assert_eq!(values.data_type(), &data_type);
            assert_eq!(values.len(), batch.num_rows());
        }
    }

    #[test]
    fn a_row_whose_value_fails_is_an_error_of_its_own() {
        let batch = batch();
        let schema = DFSchema::try_from(batch.schema().as_ref().clone()).unwrap();
        let divided = coalesce(vec![lit(6_i64) / (col("a") - lit(7_i64)), lit(9_i64)]);
        let compiled = compile_expr(&divided, schema).unwrap();
        let (values, failures) = evaluate(&compiled, &batch).unwrap();
        assert_eq!(failures.into_keys().collect::<Vec<_>>(), [0]);
        let values: Vec<_> = values.as_primitive::<Int64Type>().iter().collect();
        let expected = [None, Some(9), Some(0), Some(9), Some(9), Some(-1)];
        assert_eq!(values, expected);
    }

    #[test]
    fn other_cases_are_not_replaced() {
        let other = when(col("a").is_not_null(), col("n")).otherwise(lit(0_i64));
        let texts = coalesce(vec![col("t"), lit("x")]);
        let columns = coalesce(vec![col("a"), col("n")]);
        let null = coalesce(vec![col("a"), lit(ScalarValue::Int64(None))]);
        for expr in [other.unwrap(), texts, columns, null] {
            assert!(!computed(&expr).1, "{expr}");
        }
    }
}
