//! The function `octet_length`, for binary values as well as text.

use std::sync::Arc;

use arrow::compute::kernels::length::length;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Returns the number of bytes of a binary or text value, as Int64; null for null.
///
/// This function replaces DataFusion's function of the same name, which accepts only text.
/// Pipelines over images often filter by the size of the encoded image.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OctetLength {
    signature: Signature,
}

/// Creates the DataFusion function `octet_length`.
pub(crate) fn octet_length() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(OctetLength { signature }))
}

impl ScalarUDFImpl for OctetLength {
    fn name(&self) -> &str {
        "octet_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [kind] if kind.is_string() || kind.is_binary() || kind.is_null() => Ok(DataType::Int64),
            [kind] => plan_err!("octet_length expects binary or text, found {kind}"),
            _ => plan_err!("octet_length expects one argument, found {}", types.len()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return exec_err!(
                "octet_length expects one argument, found {}",
                args.args.len()
            );
        };
        let array = value.to_array(1)?;
        let lengths = match array.data_type() {
            DataType::Null => ColumnarValue::Array(array),
            _ => ColumnarValue::Array(length(&array)?),
        };
        let lengths = lengths.cast_to(&DataType::Int64, None)?;
        match (value, lengths) {
            (ColumnarValue::Scalar(_), ColumnarValue::Array(array)) => Ok(ColumnarValue::Scalar(
                datafusion::common::ScalarValue::try_from_array(&array, 0)?,
            )),
            (_, lengths) => Ok(lengths),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BinaryArray, BinaryViewArray, Int64Array, StringArray};
    use arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::common::config::ConfigOptions;

    use super::*;

    fn invoke(value: ColumnarValue, rows: usize) -> ColumnarValue {
        let field = Arc::new(Field::new("x", value.data_type(), true));
        octet_length()
            .invoke_with_args(ScalarFunctionArgs {
                args: vec![value],
                arg_fields: vec![field],
                number_rows: rows,
                return_field: Arc::new(Field::new("y", DataType::Int64, true)),
                config_options: Arc::new(ConfigOptions::default()),
            })
            .unwrap()
    }

    #[test]
    fn bytes_are_counted_in_every_layout() {
        let bytes: Vec<Option<&[u8]>> = vec![Some(b"abc"), None, Some(b"")];
        let arrays: [ArrayRef; 3] = [
            Arc::new(BinaryArray::from(bytes.clone())),
            Arc::new(BinaryViewArray::from(bytes)),
            Arc::new(StringArray::from(vec![Some("dé"), None, Some("")])),
        ];
        for array in arrays {
            let counted = invoke(ColumnarValue::Array(array), 3).to_array(3).unwrap();
            let expected = Int64Array::from(vec![Some(3), None, Some(0)]);
            assert_eq!(counted.as_ref(), &expected as &dyn arrow::array::Array);
        }
    }

    #[test]
    fn a_constant_stays_a_constant() {
        let value = ColumnarValue::Scalar(ScalarValue::from("abcd"));
        let ColumnarValue::Scalar(length) = invoke(value, 7) else {
            panic!("an array")
        };
        assert_eq!(length, ScalarValue::Int64(Some(4)));
        let null = ColumnarValue::Scalar(ScalarValue::Null);
        let ColumnarValue::Scalar(length) = invoke(null, 7) else {
            panic!("an array")
        };
        assert_eq!(length, ScalarValue::Int64(None));
    }

    #[test]
    fn other_types_are_refused() {
        assert!(octet_length().return_type(&[DataType::Int32]).is_err());
    }
}
