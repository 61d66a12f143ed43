//! `one_hot`: converts a label to a vector.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use serde_json::json;

use crate::args::CallArgs;
use crate::facts::{Algebra, Purity};
use crate::failure::{RowFailure, RowFunction, all_or_first};
use crate::info::{FunctionInfo, TENSORS, arg, facts};
use crate::tensor::{FIXED_SHAPE, extension, named};

/// Maximum number of classes, which is the length of the vector; planning refuses more.
const MAX_CLASSES: i64 = 1 << 20;

/// Documentation and facts of `one_hot`.
pub(crate) const ONE_HOT: FunctionInfo = FunctionInfo {
    name: "one_hot",
    category: TENSORS,
    signature: "one_hot(label, n)",
    summary: "Makes a label a vector with 1 at the label and 0 elsewhere.",
    arguments: &[
        arg(
            "label",
            "An integer from 0 to n - 1; any other is an error of its row.",
        ),
        arg("n", "Length of the vector, 1 to 1048576."),
    ],
    returns: "A tensor f32[n].",
    example: "SELECT one_hot(label, 10) FROM photos",
    counterpart: "torch.nn.functional.one_hot, which gives int64; floats are what soft labels need.",
    facts: facts(Purity::Pure, Algebra::Opaque, true),
};

/// `one_hot(label, n)`: `n` single-precision floats, 1 at the label and 0 elsewhere. PyTorch's
/// `one_hot` returns 64-bit integers, but soft labels and losses take floats.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OneHot {
    signature: Signature,
}

impl OneHot {
    /// Returns `one_hot` as a DataFusion function.
    pub(crate) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { signature }))
    }

    fn classes(args: &CallArgs, fields: &[FieldRef]) -> Result<i64> {
        args.expect_count(2, 2, "one_hot(label, n)")?;
        let label = fields[0].data_type();
        if !(label.is_integer() || label.is_null()) {
            return plan_err!(
                "one_hot: expected an integer label, found {}",
                named(&fields[0])
            );
        }
        args.whole(1, "n", (1, MAX_CLASSES))
    }
}

fn data_type(classes: i64) -> DataType {
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    DataType::FixedSizeList(item, classes as i32)
}

impl ScalarUDFImpl for OneHot {
    fn name(&self) -> &str {
        "one_hot"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of one_hot depends on n")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let own = CallArgs::planned("one_hot", args.arg_fields, args.scalar_arguments);
        let classes = Self::classes(&own, args.arg_fields)?;
        let metadata = extension(FIXED_SHAPE, &json!({"shape": [classes]}));
        let field = Field::new("one_hot", data_type(classes), true).with_metadata(metadata);
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        all_or_first(self.invoke_rows(args)).map(ColumnarValue::Array)
    }
}

impl RowFunction for OneHot {
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let own = CallArgs::evaluated("one_hot", &args.arg_fields, &args.args);
        let classes = Self::classes(&own, &args.arg_fields)?;
        let labels = args.args[0].to_array(args.number_rows)?;
        let wide = cast(&labels, &DataType::Int64)?;
        let wide = wide.as_primitive::<Int64Type>();
        let mut values = vec![0.0_f32; labels.len() * classes as usize];
        let mut valid = vec![false; labels.len()];
        let mut failures = Vec::new();
        for row in (0..labels.len()).filter(|&row| labels.is_valid(row)) {
            let label = if wide.is_valid(row) {
                wide.value(row)
            } else {
                -1
            };
            if (0..classes).contains(&label) {
                values[row * classes as usize + label as usize] = 1.0;
                valid[row] = true;
            } else {
                let cause = format!("label {label} is not within 0 to {}", classes - 1);
                failures.push(RowFailure {
                    row,
                    operator: "one_hot".to_owned(),
                    cause,
                });
            }
        }
        let DataType::FixedSizeList(item, n) = data_type(classes) else {
            return internal_err!("one_hot gives a list");
        };
        let values = Arc::new(Float32Array::from(values));
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        Ok((
            Arc::new(FixedSizeListArray::try_new(item, n, values, nulls)?),
            failures,
        ))
    }
}
