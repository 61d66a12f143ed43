//! Expressions of a builder: functions by name, and literals that mean what they mean in SQL.

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

/// A call of a function by its name in SQL, which `build` looks up.
pub fn call(function: &str, arguments: impl IntoIterator<Item = Expr>) -> Expr {
    let function = Arc::new(ScalarUDF::new_from_impl(Unresolved::new(function)));
    Expr::ScalarFunction(ScalarFunction::new_udf(
        function,
        arguments.into_iter().collect(),
    ))
}

/// A column by its name: the one of exactly this spelling, else the only one that differs in upper and lower case alone.
pub fn col(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// A list of numbers, as SQL's `[0.485, 0.456]`.
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

/// The last argument of a random function that shares its draws with others of the same name, as
/// SQL's `stream => 'name'`.
pub fn stream(name: &str) -> Expr {
    call("__stream", [lit(name)])
}

/// What SQL writes as `PINNED f(..)`.
pub trait Pin {
    /// The call, which the optimiser leaves where it stands: no rule moves, drops or doubles it.
    #[must_use]
    fn pinned(self) -> Self;
}

impl Pin for Expr {
    fn pinned(self) -> Self {
        call(PIN_MARKER, [self])
    }
}

/// A function that is known by its name alone.
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
            // Nothing may be concluded of it before it is known.
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

/// Looks up the functions of an expression, and gives literals the types that SQL gives them:
/// whole numbers are Int64, others Float64.
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
        // SQL reads a number beyond Int64 as UInt64 too.
        ScalarValue::UInt64(Some(value)) => Some(i64::try_from(*value).ok()?),
        ScalarValue::Float32(value) => return Some(ScalarValue::Float64(value.map(f64::from))),
        _ => return None,
    };
    Some(ScalarValue::Int64(wide))
}
