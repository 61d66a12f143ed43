//! An image function as a DataFusion function.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::functions::IMAGE_FUNCTIONS;
use super::input::ImageKind;
use super::op::{ImageFunction, ImageOp};
use super::run::run;
use super::stage::ProgramStage;
use crate::args::CallArgs;
use crate::binding::Binding;
use crate::facts::Algebra;
use crate::failure::{RowFailure, RowFunction, all_or_first};
use crate::row::{RowColumn, stream_of};

/// A DataFusion function over an [`ImageFunction`].
#[derive(Debug)]
pub(crate) struct ImageUdf {
    function: &'static ImageFunction,
    signature: Signature,
}

impl PartialEq for ImageUdf {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for ImageUdf {}

impl Hash for ImageUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ImageUdf {
    /// Returns all image functions as DataFusion functions.
    pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
        let udf = |function: &&'static ImageFunction| {
            let volatility = if function.is_random() {
                Volatility::Volatile
            } else {
                Volatility::Immutable
            };
            Arc::new(ScalarUDF::new_from_impl(Self {
                function,
                signature: Signature::variadic_any(volatility),
            }))
        };
        IMAGE_FUNCTIONS.iter().map(udf).collect()
    }

    /// Returns the underlying image function.
    pub(crate) const fn function(&self) -> &'static ImageFunction {
        self.function
    }

    /// Returns the binding state of a call.
    fn binding(
        &self,
        fields: &[FieldRef],
        value: impl Fn(usize) -> Option<ScalarValue>,
    ) -> Binding {
        if self.function.is_random() {
            Binding::of(fields, value)
        } else {
            Binding::Unbound(fields.len())
        }
    }

    /// Returns the kind of the image argument. Fails if the function does not accept that kind.
    fn kind(&self, fields: &[FieldRef]) -> Result<ImageKind> {
        let decodes = self.function.info.facts.algebra == Algebra::Decode;
        match fields.first() {
            Some(field) => ImageKind::of(field, self.name(), decodes),
            None => plan_err!(
                "{}: expected an image as first argument, found none",
                self.name()
            ),
        }
    }

    /// Parses the constants of a call whose image argument is of `kind`.
    fn parse(&self, own: &CallArgs, kind: ImageKind) -> Result<Arc<dyn ImageOp>> {
        (self.function.parse)(own, kind.tensor())
    }
}

impl ScalarUDFImpl for ImageUdf {
    fn name(&self) -> &str {
        self.function.info.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {} depends on its constants", self.name())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let kind = self.kind(args.arg_fields)?;
        let value = |i: usize| args.scalar_arguments[i].cloned();
        let count = self.binding(args.arg_fields, value).count();
        let own = CallArgs::planned(
            self.name(),
            &args.arg_fields[..count],
            &args.scalar_arguments[..count],
        );
        let op = self.parse(&own, kind)?;
        Ok(Arc::new(op.result(kind.tensor())?.to_field(self.name())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        all_or_first(self.invoke_rows(args)).map(ColumnarValue::Array)
    }
}

impl RowFunction for ImageUdf {
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let kind = self.kind(&args.arg_fields)?;
        let binding = self.binding(&args.arg_fields, |_| None);
        let count = binding.count();
        let own = CallArgs::evaluated(self.name(), &args.arg_fields[..count], &args.args[..count]);
        let op = self.parse(&own, kind)?;
        let (stream, rows) = match binding {
            Binding::Bound(_) => {
                let stream = stream_of(self.name(), &args.args[count])?;
                let rows = args.args[count + 1].to_array(args.number_rows)?;
                (Some(stream), Some(RowColumn::try_from_array(&rows)?))
            }
            Binding::Unbound(_) if self.function.is_random() => {
                return internal_err!("{} ran without a stream", self.name());
            }
            Binding::Unbound(_) => (None, None),
        };
        let image = args.args[0].to_array(args.number_rows)?;
        run(&[ProgramStage { op, stream }], &image, kind, rows.as_ref())
    }
}
