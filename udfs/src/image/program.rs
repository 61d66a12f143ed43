//! A fused chain of image functions.

use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::input::Kind;
use super::op::ImageOp;
use super::run::{Stage, output_type, run};
use crate::failure::{RowFailure, RowFunction, all_or_first};
use crate::row::Rows;

/// A chain of image functions that runs as one: per row one pass from input to final place, no
/// column in between. Arguments: the innermost image or bytes, and the hidden row column if any
/// function draws.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ImageProgram {
    stages: Vec<Stage>,
    name: String,
    signature: Signature,
}

impl ImageProgram {
    /// The program of these functions, innermost first.
    pub(crate) fn new(stages: Vec<Stage>) -> Self {
        let steps: Vec<String> = stages.iter().map(|s| Shown(s).to_string()).collect();
        let name = format!("image_program[{}]", steps.join(" > "));
        // Immutable although it may draw: draws are a function of an argument, the row column.
        Self {
            stages,
            name,
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }

    /// The program as a DataFusion function.
    pub(crate) fn udf(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(self))
    }

    /// The names of the functions, innermost first.
    pub fn functions(&self) -> impl Iterator<Item = &'static str> {
        self.stages.iter().map(|s| s.op.name())
    }

    /// Every function with its stream and all of its constants, which the name shows in part only.
    pub fn definition(&self) -> String {
        format!("image_program{:?}", self.stages)
    }

    /// Whether any function draws.
    pub fn is_random(&self) -> bool {
        self.stages.iter().any(|s| s.stream.is_some())
    }

    fn kind(&self, fields: &[FieldRef]) -> Result<Kind> {
        match (self.stages.first(), fields.first()) {
            (Some(stage), Some(field)) => {
                let decodes = matches!(stage.op, ImageOp::Decode(_));
                Kind::of(field, stage.op.name(), decodes)
            }
            _ => internal_err!("an image program without functions or input"),
        }
    }
}

/// A stage as `EXPLAIN` shows it: constants, then `#stream` where it draws.
struct Shown<'a>(&'a Stage);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stage { op, stream } = self.0;
        match stream {
            None => write!(f, "{op}"),
            Some(ordinal) if ordinal >> 63 == 0 => write!(f, "{op} #{ordinal}"),
            Some(named) => write!(f, "{op} #{named:x}"),
        }
    }
}

impl ScalarUDFImpl for ImageProgram {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args.iter().map(|a| a.schema_name().to_string()).collect();
        Ok(format!("{}({})", self.name, args.join(",")))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of an image program depends on its input field")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let output = output_type(&self.stages, self.kind(args.arg_fields)?)?;
        // The unfused chain's field has the name of its outermost function.
        let name = self.stages.last().map_or("image", |s| s.op.name());
        Ok(Arc::new(output.to_field(name)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        all_or_first(self.invoke_rows(args)).map(ColumnarValue::Array)
    }
}

impl RowFunction for ImageProgram {
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let kind = self.kind(&args.arg_fields)?;
        let rows = match args.args.get(1) {
            Some(rows) => Some(Rows::try_from_array(&rows.to_array(args.number_rows)?)?),
            None => None,
        };
        let image = args.args[0].to_array(args.number_rows)?;
        run(&self.stages, &image, kind, rows.as_ref())
    }
}
