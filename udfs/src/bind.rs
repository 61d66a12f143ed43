//! Binds random functions to their streams.
//!
//! A call as written is *unbound*: it has the arguments that the user wrote, and possibly a
//! `__stream('name')` marker (`stream => 'name'` in SQL). A *bound* call ends with two more
//! arguments: the stream as a literal, and the hidden row column. Only bound calls can run.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Column, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use crate::binding::NAMED;
use crate::catalogue::is_random;
use crate::hash::hash_bytes;
use crate::row::ROW_COLUMN;

/// Name of the marker function whose argument is the name of a random call's stream.
pub const STREAM_MARKER: &str = "__stream";

/// Returns the id of the stream named `name`.
pub const fn named_stream(name: &str) -> u64 {
    hash_bytes(name.as_bytes()) | NAMED
}

/// Binds a call of a random function to the stream that a [`STREAM_MARKER`] among the arguments
/// names, or else to `ordinal`, the call's index in the order of evaluation. Fails if the function
/// is not random, if the call is bound already, or if the marker's argument is not a text literal.
pub fn bind_stream(call: ScalarFunction, ordinal: u64) -> Result<Expr> {
    let ScalarFunction { func, mut args } = call;
    let name = func.name().to_owned();
    if !is_random(&name) {
        return internal_err!("{name} draws nothing and has no stream");
    }
    if matches!(args.last(), Some(Expr::Column(column)) if column.name == ROW_COLUMN) {
        return internal_err!("{name} is bound already");
    }
    if ordinal >= NAMED {
        return internal_err!("stream ordinal {ordinal} is out of range");
    }
    let stream = match args.last() {
        Some(Expr::ScalarFunction(marker)) if marker.func.name() == STREAM_MARKER => {
            let stream = match marker.args.as_slice() {
                [Expr::Literal(value, _)] => value.try_as_str().flatten().map(named_stream),
                _ => None,
            };
            args.pop();
            match stream {
                Some(stream) => stream,
                None => return plan_err!("{name}: stream must be a text literal"),
            }
        }
        Some(Expr::Literal(ScalarValue::UInt64(Some(stream)), _)) if *stream >= NAMED => {
            let stream = *stream;
            args.pop();
            stream
        }
        _ => ordinal,
    };
    args.push(lit(stream));
    args.push(Expr::Column(Column::new_unqualified(ROW_COLUMN)));
    Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
}

/// The marker function `__stream('name')`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamMarker {
    signature: Signature,
}

impl StreamMarker {
    /// Returns the marker as a DataFusion function.
    pub(crate) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::variadic_any(Volatility::Volatile);
        Arc::new(ScalarUDF::new_from_impl(Self { signature }))
    }
}

impl ScalarUDFImpl for StreamMarker {
    fn name(&self) -> &str {
        STREAM_MARKER
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8] => Ok(DataType::UInt64),
            _ => plan_err!("stream must be one text literal"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => match value.try_as_str().flatten() {
                Some(name) => Ok(ColumnarValue::Scalar(named_stream(name).into())),
                None => plan_err!("stream must not be NULL"),
            },
            _ => plan_err!("stream must be one text literal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions;

    fn call(name: &str, args: Vec<Expr>) -> ScalarFunction {
        let func = functions().into_iter().find(|f| f.name() == name).unwrap();
        ScalarFunction { func, args }
    }

    #[test]
    fn ordinals_and_names_become_literals() {
        let image = || Expr::Column(Column::new_unqualified("image"));
        let Expr::ScalarFunction(bound) =
            bind_stream(call("random_hflip", vec![image()]), 7).unwrap()
        else {
            panic!()
        };
        assert_eq!(bound.args[1], lit(7_u64));
        assert_eq!(bound.args[2].to_string(), ROW_COLUMN);
        let marker = Expr::ScalarFunction(call(STREAM_MARKER, vec![lit("flip")]));
        let named = call("random_hflip", vec![image(), lit(0.5), marker]);
        let Expr::ScalarFunction(bound) = bind_stream(named, 7).unwrap() else {
            panic!()
        };
        assert_eq!(bound.args.len(), 4);
        assert_eq!(bound.args[2], lit(named_stream("flip")));
        assert!(bind_stream(bound, 7).is_err());
        assert!(bind_stream(call("hflip", vec![image()]), 7).is_err());
    }
}
