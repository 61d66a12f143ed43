//! Functions that the host program implements, with declared properties that the optimiser may
//! assume.
//!
//! A host (such as the Python package) implements [`DeclaredFunction`] and puts the result of
//! [`declare`] into plans. The engine knows nothing about such a function but its declaration: any
//! row may fail in the function, and if the function is not deterministic, no rewrite moves,
//! duplicates, drops or caches its calls.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use crate::failure::all_or_first;
use crate::{RowFailure, RowFunction};

/// Assumed nanoseconds per row of a function that does not declare its cost: about the cost of a
/// call into an interpreter, which is high enough that filters move below the function.
pub const UNKNOWN_NS_PER_ROW: u64 = 10_000;

/// A function that the host implements, and that is not in the catalogue.
///
/// The value of a row must depend only on that row's arguments (unless the function is not
/// deterministic), since the engine chooses which rows are evaluated together.
pub trait DeclaredFunction: Any + fmt::Debug + Send + Sync {
    /// Name of the function in plans, hashes and errors. Two functions of a plan must have
    /// different names.
    fn name(&self) -> &str;

    /// Version of the function's meaning. The version is part of the semantic hash.
    fn version(&self) -> u32;

    /// True if equal arguments give equal values, in every epoch and process.
    fn is_deterministic(&self) -> bool;

    /// Nanoseconds per row on one core; `None` if unknown.
    fn ns_per_row(&self) -> Option<u64>;

    /// Returns the type of the function's values. Fails if the function does not accept arguments
    /// of the types in `arguments`.
    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef>;

    /// Evaluates the function. Returns the values, which are null for failed rows, and the failures
    /// in row order. An `Err` means that the function is wrong, not a row, and ends the run under
    /// any `on_error`. The cause of a failure starts with the kind of the failure and a colon, as
    /// in `ValueError: no number`. If all of the first rows of a run fail with the same kind, the
    /// function counts as wrong, too.
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)>;

    /// Returns the function with its code, which [`HostFunctions::decode`] of another machine reads.
    ///
    /// # Errors
    /// Fails if the function cannot be sent, with the reason.
    fn code(&self) -> std::result::Result<Vec<u8>, String> {
        Err("its code is part of this program".to_owned())
    }

    /// Takes what the function has printed, if a user should see it elsewhere: on the client of a
    /// cluster, for a function that runs on a worker.
    fn take_printed(&self) -> String {
        String::new()
    }
}

/// The part of a worker that runs functions of the host language of its clients.
pub trait HostFunctions: fmt::Debug + Send + Sync {
    /// Decodes a function from the result of [`DeclaredFunction::code`], which is untrusted input.
    ///
    /// # Errors
    /// Fails if the function cannot run here, with the reason.
    fn decode(&self, code: &[u8]) -> std::result::Result<Arc<dyn DeclaredFunction>, String>;

    /// Returns the latest incidents with functions, oldest first, for the status of the worker.
    fn events(&self) -> Vec<String> {
        Vec::new()
    }
}

/// An error of a declared function that does not belong to a row, such as a result with a wrong
/// number of rows. The error ends the run under any `on_error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {message}")]
pub struct FunctionFault {
    /// Name of the function.
    pub function: String,
    /// The message, possibly followed by the stack frames of the user's code.
    pub message: String,
    /// True if the function does not run on this machine and may run on another: it cannot be set
    /// up here.
    pub is_of_machine: bool,
}

/// Wraps a declared function as a DataFusion function.
pub fn declare(function: Arc<dyn DeclaredFunction>) -> Arc<ScalarUDF> {
    let volatility = if function.is_deterministic() {
        Volatility::Immutable
    } else {
        Volatility::Volatile
    };
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    Arc::new(ScalarUDF::new_from_impl(DeclaredUdf {
        function,
        signature: Signature::one_of(any, volatility),
    }))
}

/// Returns the declared function that `udf` wraps; `None` for any other DataFusion function.
pub fn declared(udf: &ScalarUDF) -> Option<&Arc<dyn DeclaredFunction>> {
    let found = udf.inner().downcast_ref::<DeclaredUdf>();
    found.map(|found| &found.function)
}

/// True if an expression calls a declared function.
pub fn calls_declared(expr: &Expr) -> bool {
    calls(expr, |_| true)
}

/// Returns the declared functions that an expression calls, one for each call.
pub fn declared_functions(expr: &Expr) -> Vec<Arc<dyn DeclaredFunction>> {
    let mut functions = Vec::new();
    calls(expr, |function| {
        functions.push(Arc::clone(function));
        false
    });
    functions
}

/// True if an expression calls a declared function that is not deterministic.
pub fn is_volatile(expr: &Expr) -> bool {
    calls(expr, |function| !function.is_deterministic())
}

fn calls(expr: &Expr, mut which: impl FnMut(&Arc<dyn DeclaredFunction>) -> bool) -> bool {
    let found = expr.exists(|e| {
        Ok(match e {
            Expr::ScalarFunction(call) => declared(&call.func).is_some_and(&mut which),
            _ => false,
        })
    });
    // The closure does not fail.
    found.unwrap_or(true)
}

/// A declared function as a DataFusion function. Two `DeclaredUdf`s are equal if they wrap the same
/// object: names are for display and need not be unique.
#[derive(Debug)]
pub(crate) struct DeclaredUdf {
    function: Arc<dyn DeclaredFunction>,
    signature: Signature,
}

impl PartialEq for DeclaredUdf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
    }
}

impl Eq for DeclaredUdf {}

impl Hash for DeclaredUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name().hash(state);
        self.function.version().hash(state);
    }
}

impl ScalarUDFImpl for DeclaredUdf {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        internal_err!("{} has a field, not a type alone", self.function.name())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.function.return_field(args.arg_fields)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        all_or_first(self.function.invoke_rows(args)).map(ColumnarValue::Array)
    }
}

impl RowFunction for DeclaredUdf {
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        self.function.invoke_rows(args)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::row_function;

    #[derive(Debug)]
    struct Noise(bool);

    impl DeclaredFunction for Noise {
        fn name(&self) -> &str {
            "lab.noise"
        }
        fn version(&self) -> u32 {
            3
        }
        fn is_deterministic(&self) -> bool {
            self.0
        }
        fn ns_per_row(&self) -> Option<u64> {
            None
        }
        fn return_field(&self, _: &[FieldRef]) -> Result<FieldRef> {
            Ok(Arc::new(Field::new("noise", DataType::Int64, true)))
        }
        fn invoke_rows(&self, _: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
            internal_err!("only planned")
        }
    }

    #[test]
    fn a_declared_function_is_found_again_and_is_itself_alone() {
        let function = declare(Arc::new(Noise(false)));
        assert!(declared(&function).is_some() && row_function(&function).is_some());
        assert_eq!(function, Arc::clone(&function));
        assert_ne!(function, declare(Arc::new(Noise(false))));
        let nested = function.call(vec![col("a")]) + lit(1);
        assert!(is_volatile(&nested) && calls_declared(&nested));
        let pure = declare(Arc::new(Noise(true))).call(vec![]);
        assert!(!is_volatile(&pure) && calls_declared(&pure));
        assert!(!calls_declared(&col("a")));
    }
}
