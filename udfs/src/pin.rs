//! The marker of an operator that the optimiser must not move: `PINNED f(..)`.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// Name of the function that marks an operator as pinned.
pub const PIN_MARKER: &str = "__pinned";

/// Returns the expression inside a [`PIN_MARKER`]; `None` if the outermost call of `expr` is not a
/// marker.
pub fn pinned(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == PIN_MARKER => {
            args.first()
        }
        _ => None,
    }
}

/// Removes every [`PIN_MARKER`] from `expr`. The result counts as transformed if `expr` had a
/// marker.
pub fn without_pins(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match pinned(&expr) {
        Some(inner) => Ok(Transformed::yes(inner.clone())),
        None => Ok(Transformed::no(expr)),
    })
}

/// The marker function, which returns its argument under the argument's name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct PinMarker {
    signature: Signature,
}

impl PinMarker {
    /// Returns the marker as a DataFusion function.
    pub(crate) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { signature }))
    }
}

impl ScalarUDFImpl for PinMarker {
    fn name(&self) -> &str {
        PIN_MARKER
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args.first() {
            Some(arg) => Ok(arg.schema_name().to_string()),
            None => internal_err!("{PIN_MARKER} expects one argument"),
        }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        match args.first() {
            Some(arg) => Ok(format!("PINNED {arg}")),
            None => internal_err!("{PIN_MARKER} expects one argument"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(data_type) => Ok(data_type.clone()),
            None => internal_err!("{PIN_MARKER} expects one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields.first() {
            Some(field) => Ok(Arc::clone(field)),
            None => internal_err!("{PIN_MARKER} expects one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("{PIN_MARKER} expects one argument"),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn markers_are_taken_off_at_any_depth() {
        let mark = |expr| {
            Expr::ScalarFunction(ScalarFunction {
                func: PinMarker::udf(),
                args: vec![expr],
            })
        };
        let written = mark(mark(col("a")) + lit(1));
        assert_eq!(pinned(&written), Some(&(mark(col("a")) + lit(1))));
        let plain = without_pins(written.clone()).unwrap();
        assert!(plain.transformed);
        assert_eq!(plain.data, col("a") + lit(1));
        assert!(!without_pins(plain.data).unwrap().transformed);
        let name = mark(col("a") + lit(1)).schema_name().to_string();
        assert_eq!(name, "a + Int32(1)");
    }
}
