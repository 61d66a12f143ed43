//! A fused chain of image functions.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::call::ImageCall;
use super::definition::list;
use super::input::ImageKind;
use super::run::run;
use super::stage::{ProgramStage, output_type};
use crate::failure::{RowFailure, RowFunction, all_or_first};
use crate::row::RowColumn;

/// A chain of image functions that runs as one function: the image of a row passes through all
/// functions and is written to its final position in the result, without intermediate columns. The
/// arguments of the program are the image or bytes that the innermost function reads, and the
/// hidden row column if any function takes draws.
#[derive(Debug)]
pub struct ImageProgram {
    stages: Vec<ProgramStage>,
    name: String,
    definition: String,
    signature: Signature,
}

impl ImageProgram {
    /// Creates the program of the functions in `stages`, innermost function first.
    pub(crate) fn new(stages: Vec<ProgramStage>) -> Self {
        let steps: Vec<String> = stages.iter().map(|s| ShownStage(s).to_string()).collect();
        let name = format!("image_program[{}]", steps.join(" > "));
        let definition = format!(
            "image_program[{}]",
            list(stages.iter().map(ProgramStage::definition))
        );
        // The program is immutable even if it takes draws: the draws depend only on an argument,
        // the row column.
        Self {
            stages,
            name,
            definition,
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }

    /// Wraps the program as a DataFusion function.
    pub(crate) fn udf(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(self))
    }

    /// Returns the functions, innermost function first.
    pub(super) fn stages(&self) -> &[ProgramStage] {
        &self.stages
    }

    /// Returns the names of the functions, innermost function first.
    pub fn functions(&self) -> impl Iterator<Item = &'static str> {
        self.stages.iter().map(|s| s.op.name())
    }

    /// Returns a text with every function, its stream and all of its constants. The program's name
    /// has only some of the constants.
    pub fn definition(&self) -> &str {
        &self.definition
    }

    /// True if any function takes random draws.
    pub fn is_random(&self) -> bool {
        self.stages.iter().any(|s| s.stream.is_some())
    }

    fn kind(&self, fields: &[FieldRef]) -> Result<ImageKind> {
        match (self.stages.first(), fields.first()) {
            (Some(stage), Some(field)) => {
                let decodes = matches!(stage.op.call(), ImageCall::Decode(_));
                ImageKind::of(field, stage.op.name(), decodes)
            }
            _ => internal_err!("an image program without functions or input"),
        }
    }
}

/// Programs are equal if their definitions are equal; names show only some of the constants.
impl PartialEq for ImageProgram {
    fn eq(&self, other: &Self) -> bool {
        self.definition == other.definition
    }
}

impl Eq for ImageProgram {}

impl Hash for ImageProgram {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.hash(state);
    }
}

/// A stage as `EXPLAIN` shows it: name and main constants, and `#stream` if the function takes
/// draws.
struct ShownStage<'a>(&'a ProgramStage);

impl fmt::Display for ShownStage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProgramStage { op, stream } = self.0;
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
        // The chain's field had the name of the outermost function before fusing, so the program's
        // field gets the same name.
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
            Some(rows) => Some(RowColumn::try_from_array(
                &rows.to_array(args.number_rows)?,
            )?),
            None => None,
        };
        let image = args.args[0].to_array(args.number_rows)?;
        run(&self.stages, &image, kind, rows.as_ref())
    }
}
