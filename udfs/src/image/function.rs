//! One image function as DataFusion sees it.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::input::Kind;
use super::op::ImageOp;
use super::parse::{IMAGE_FUNCTIONS, parse};
use super::run::{Stage, run};
use crate::args::Args;
use crate::bind::Binding;
use crate::failure::{RowFailure, RowFunction, all_or_first};
use crate::random::stream_of;
use crate::row::Rows;

/// A function that makes an image of an image (or of encoded bytes).
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ImageFunction {
    name: &'static str,
    random: bool,
    signature: Signature,
}

impl ImageFunction {
    /// All image functions as DataFusion functions.
    pub(crate) fn udfs() -> Vec<Arc<ScalarUDF>> {
        let udf = |(name, random)| {
            let volatility = if random {
                Volatility::Volatile
            } else {
                Volatility::Immutable
            };
            let signature = Signature::variadic_any(volatility);
            Arc::new(ScalarUDF::new_from_impl(Self {
                name,
                random,
                signature,
            }))
        };
        IMAGE_FUNCTIONS.into_iter().map(udf).collect()
    }

    /// Whether the function draws.
    pub(crate) const fn is_random(&self) -> bool {
        self.random
    }

    /// How the call is bound.
    pub(crate) fn binding(
        &self,
        fields: &[FieldRef],
        value: impl Fn(usize) -> Option<ScalarValue>,
    ) -> Binding {
        if self.random {
            Binding::of(fields, value)
        } else {
            Binding::Unbound(fields.len())
        }
    }

    /// The kind of the image argument.
    pub(crate) fn kind(&self, fields: &[FieldRef]) -> Result<Kind> {
        match fields.first() {
            Some(field) => Kind::of(field, self.name, self.name == "decode_image"),
            None => plan_err!(
                "{}: expected an image as first argument, found none",
                self.name
            ),
        }
    }

    /// Reads the constants of a call whose image is of `kind`.
    pub(crate) fn parse(&self, own: &Args, kind: Kind) -> Result<ImageOp> {
        let tensor = match kind {
            Kind::Encoded => None,
            Kind::Image(tensor) => Some(tensor),
        };
        parse(own, tensor)
    }
}

impl ScalarUDFImpl for ImageFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {} depends on its constants", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let kind = self.kind(args.arg_fields)?;
        let value = |i: usize| args.scalar_arguments[i].cloned();
        let count = self.binding(args.arg_fields, value).count();
        let own = Args::planned(
            self.name,
            &args.arg_fields[..count],
            &args.scalar_arguments[..count],
        );
        let op = self.parse(&own, kind)?;
        let input = match kind {
            Kind::Encoded => None,
            Kind::Image(tensor) => Some(tensor),
        };
        Ok(Arc::new(op.output(input)?.to_field(self.name)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        all_or_first(self.invoke_rows(args)).map(ColumnarValue::Array)
    }
}

impl RowFunction for ImageFunction {
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let kind = self.kind(&args.arg_fields)?;
        let binding = self.binding(&args.arg_fields, |_| None);
        let count = binding.count();
        let own = Args::evaluated(self.name, &args.arg_fields[..count], &args.args[..count]);
        let op = self.parse(&own, kind)?;
        let (stream, rows) = match binding {
            Binding::Bound(_) => {
                let stream = stream_of(self.name, &args.args[count])?;
                let rows = args.args[count + 1].to_array(args.number_rows)?;
                (Some(stream), Some(Rows::try_from_array(&rows)?))
            }
            Binding::Unbound(_) if self.random => {
                return internal_err!("{} ran without a stream", self.name);
            }
            Binding::Unbound(_) => (None, None),
        };
        let image = args.args[0].to_array(args.number_rows)?;
        run(&[Stage { op, stream }], &image, kind, rows.as_ref())
    }
}
