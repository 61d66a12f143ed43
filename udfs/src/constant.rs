//! Evaluates constant expressions before DataFusion folds them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::{Cast, Expr, lit};

/// Returns the value of a literal, of a cast or negation of a constant, or of a list of constants;
/// `None` for any other expression.
pub fn constant(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Alias(alias) => constant(&alias.expr),
        Expr::Cast(Cast { expr, field }) => constant(expr)?.cast_to(field.data_type()).ok(),
        Expr::Negative(expr) => constant(expr)?.arithmetic_negate().ok(),
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "make_array" => {
            list(args.iter().map(constant).collect::<Option<_>>()?)
        }
        _ => None,
    }
}

/// Creates a list literal from constants. Numbers of different types become `Float64`. `None` if
/// `values` is empty, or if the types differ and are not all numeric.
fn list(mut values: Vec<ScalarValue>) -> Option<ScalarValue> {
    let first = values.first()?.data_type();
    let mut common = first.clone();
    for value in &values {
        let found = value.data_type();
        if found != common {
            let numbers = found.is_numeric() && common.is_numeric();
            common = if numbers {
                DataType::Float64
            } else {
                return None;
            };
        }
    }
    for value in &mut values {
        *value = value.cast_to(&common).ok()?;
    }
    Some(ScalarValue::List(ScalarValue::new_list_nullable(
        &values, &common,
    )))
}

/// Plans a list of constants, such as `[0.485, 0.456]`, as one literal, so that functions can read
/// the list during type checking. DataFusion folds such a list only after type checking.
#[derive(Debug, Default)]
pub struct ConstantArrays;

impl ExprPlanner for ConstantArrays {
    fn plan_array_literal(
        &self,
        exprs: Vec<Expr>,
        _schema: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let values = exprs.iter().map(constant).collect::<Option<Vec<_>>>();
        match values.and_then(list) {
            Some(list) => Ok(PlannerResult::Planned(lit(list))),
            None => Ok(PlannerResult::Original(exprs)),
        }
    }
}

/// Returns a [`ConstantArrays`], to be registered before DataFusion's own planners.
pub fn constant_arrays() -> Arc<dyn ExprPlanner> {
    Arc::new(ConstantArrays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_constants_are_literals() {
        let schema = DFSchema::empty();
        let planned = ConstantArrays.plan_array_literal(vec![lit(1_i64), lit(0.5)], &schema);
        let Ok(PlannerResult::Planned(Expr::Literal(value, _))) = planned else {
            panic!()
        };
        assert_eq!(value.to_string(), "[1.0, 0.5]");
        let column = datafusion::logical_expr::col("x");
        let kept = ConstantArrays.plan_array_literal(vec![column, lit(0.5)], &schema);
        assert!(matches!(kept, Ok(PlannerResult::Original(_))));
    }
}
