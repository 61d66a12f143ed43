//! Expressions of the pipeline builder: calls of functions by name, and literals with the types
//! that SQL gives them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError, Result, ScalarValue, plan_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility, lit,
};

use forebay_udfs::PIN_MARKER;

use crate::error::PlanError;
use crate::functions::FunctionNames;
use crate::sql::numeric_list;

/// Calls the function with the SQL name `function`, which `PipelineBuilder::build` looks up.
pub fn call(function: &str, arguments: impl IntoIterator<Item = Expr>) -> Expr {
    let function = Arc::new(ScalarUDF::new_from_impl(Unresolved::new(function)));
    Expr::ScalarFunction(ScalarFunction::new_udf(
        function,
        arguments.into_iter().collect(),
    ))
}

/// A column by name: the column spelled exactly `name`, or else the only column whose name differs
/// from `name` in upper and lower case alone.
pub fn col(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// A list of numbers, like SQL's `[0.485, 0.456]`.
pub fn list<T: Into<f64>>(values: impl IntoIterator<Item = T>) -> Expr {
    let values: Vec<Expr> = values.into_iter().map(|value| lit(value.into())).collect();
    match numeric_list(&values) {
        Some(list) => Expr::Literal(list, None),
        None => {
            let empty = ScalarValue::new_list_nullable(&[], &DataType::Float64);
            Expr::Literal(ScalarValue::List(empty), None)
        }
    }
}

/// The last argument of a random function, like SQL's `stream => 'name'`. Calls that name the same
/// stream share their draws.
pub fn stream(name: &str) -> Expr {
    call("__stream", [lit(name)])
}

/// Pins a call, like SQL's `PINNED f(..)`.
pub trait Pin {
    /// Pins the call: the optimiser does not move, drop or duplicate it.
    #[must_use]
    fn pinned(self) -> Self;
}

impl Pin for Expr {
    fn pinned(self) -> Self {
        call(PIN_MARKER, [self])
    }
}

/// A function of which only the name is set, until `PipelineBuilder::build` looks up the function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Unresolved {
    name: String,
    signature: Signature,
}

impl Unresolved {
    fn new(name: &str) -> Self {
        let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        Self {
            name: name.to_lowercase(),
            // DataFusion does not simplify calls of volatile functions, so this call stays as
            // written until `resolve` replaces its function.
            signature: Signature::one_of(any, Volatility::Volatile),
        }
    }
}

impl ScalarUDFImpl for Unresolved {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        plan_err!("{} is not resolved", self.name)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        plan_err!("{} is not resolved", self.name)
    }
}

/// Replaces each [`Unresolved`] function of `expr` by the registered function of the same name, and
/// gives number literals their SQL types: Int64 for whole numbers, Float64 for others.
pub(super) fn resolve(expr: Expr, state: &SessionState, functions: &FunctionNames) -> Result<Expr> {
    let resolved = expr.transform_up(|expr| match expr {
        Expr::ScalarFunction(call) => {
            let name = call.func.name();
            if let Some(refused) = functions.refused(name, None) {
                return Err(external(refused));
            }
            if call.func.inner().downcast_ref::<Unresolved>().is_none() {
                return Ok(Transformed::no(Expr::ScalarFunction(call)));
            }
            let known = state.scalar_functions();
            match known.get(name) {
                Some(function) => {
                    let function = Arc::clone(function);
                    Ok(Transformed::yes(Expr::ScalarFunction(
                        ScalarFunction::new_udf(function, call.args),
                    )))
                }
                None => Err(external(
                    PlanError::mistake(format!("unknown function \"{name}\""))
                        .with_suggestion(name, sorted(known.keys().map(String::as_str))),
                )),
            }
        }
        Expr::Literal(value, metadata) => {
            let value = match widen(&value) {
                Some(wide) => wide,
                None => return Ok(Transformed::no(Expr::Literal(value, metadata))),
            };
            Ok(Transformed::yes(Expr::Literal(value, metadata)))
        }
        expr => Ok(Transformed::no(expr)),
    })?;
    Ok(resolved.data)
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.filter(|name| !name.starts_with("__")).collect();
    names.sort_unstable();
    names
}

fn external(error: PlanError) -> DataFusionError {
    error.into()
}

fn widen(value: &ScalarValue) -> Option<ScalarValue> {
    let wide = match value {
        ScalarValue::Int8(value) => value.map(i64::from),
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::UInt8(value) => value.map(i64::from),
        ScalarValue::UInt16(value) => value.map(i64::from),
        ScalarValue::UInt32(value) => value.map(i64::from),
        // SQL reads a whole number beyond Int64 as UInt64.
        ScalarValue::UInt64(Some(value)) => Some(i64::try_from(*value).ok()?),
        ScalarValue::Float32(value) => return Some(ScalarValue::Float64(value.map(f64::from))),
        _ => return None,
    };
    Some(ScalarValue::Int64(wide))
}
