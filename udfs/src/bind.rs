//! Binding random functions to their streams.
//!
//! A call as written is *unbound*: its own arguments, then perhaps a `__stream('name')` marker
//! (`stream => 'name'` in SQL). A *bound* call ends with two more arguments: the stream as a
//! literal, and the hidden row column. Only bound calls can run.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Column, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use crate::hash::hash_bytes;
use crate::image::parse::IMAGE_FUNCTIONS;
use crate::random::RANDOM_SCALARS;
use crate::row::{ROW_COLUMN, row_field};

/// Name of the marker function that gives a random call a named stream.
pub const STREAM_MARKER: &str = "__stream";

/// Set in the ids of named streams, so that no ordinal meets one.
const NAMED: u64 = 1 << 63;

/// The stream id of a name.
pub const fn named_stream(name: &str) -> u64 {
    hash_bytes(name.as_bytes()) | NAMED
}

/// Whether the function of this name draws, and so must be bound.
pub fn is_random(name: &str) -> bool {
    IMAGE_FUNCTIONS
        .iter()
        .any(|&(n, random)| random && n == name)
        || RANDOM_SCALARS.iter().any(|(n, _)| *n == name)
}

/// Binds a call of a random function: to the stream of its marker, else to `ordinal`, the
/// operator's place in the order of evaluation. Errors where the call is no random function, is
/// bound already, or names its stream by something else than a text literal.
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

/// How far a call of a random function is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// Not bound; its own arguments are this many.
    Unbound(usize),
    /// Bound; its own arguments are this many, then stream and row column.
    Bound(usize),
}

impl Binding {
    /// Tells from the types of all arguments, and their values where they are literals.
    pub(crate) fn of(fields: &[FieldRef], value: impl Fn(usize) -> Option<ScalarValue>) -> Self {
        let n = fields.len();
        if n >= 2
            && fields[n - 1].data_type() == row_field().data_type()
            && *fields[n - 2].data_type() == DataType::UInt64
        {
            return Self::Bound(n - 2);
        }
        let marked = n >= 1
            && *fields[n - 1].data_type() == DataType::UInt64
            && match value(n - 1) {
                None => true,
                Some(ScalarValue::UInt64(Some(stream))) => stream >= NAMED,
                Some(_) => false,
            };
        Self::Unbound(if marked { n - 1 } else { n })
    }

    /// Number of the call's own arguments.
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::Unbound(n) | Self::Bound(n) => n,
        }
    }
}

/// The marker function `__stream('name')`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamMarker {
    signature: Signature,
}

impl StreamMarker {
    /// The marker as a DataFusion function.
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
