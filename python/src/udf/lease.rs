//! Finds the Python functions that a plan calls, and keeps their worker processes alive while a run
//! needs them.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use forebay_planner::error::PlanError;
use forebay_python_functions::PythonFunction;
use forebay_udfs::{DeclaredFunction, declared};

/// Returns the Python functions that a plan calls. Fails if two different functions have the same
/// name, since plan hashes identify functions by name.
pub(crate) fn functions(plan: &LogicalPlan) -> Result<Vec<Arc<PythonFunction>>, PlanError> {
    let mut found: Vec<Arc<PythonFunction>> = Vec::new();
    let walked = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::ScalarFunction(call) = e
                    && let Some(function) = declared(&call.func).and_then(PythonFunction::of)
                    && !found.iter().any(|known| Arc::ptr_eq(known, &function))
                {
                    found.push(function);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    walked.map_err(|error| PlanError::internal(error.to_string()))?;
    for (i, function) in found.iter().enumerate() {
        if found[..i]
            .iter()
            .any(|other| other.name() == function.name())
        {
            let what = format!(
                "two functions of the pipeline have the name {}",
                function.name()
            );
            let error = PlanError::mistake(what);
            return Err(error.with_hint("give one of them another name: udf(.., name=..)"));
        }
    }
    Ok(found)
}

/// A permission to call functions. When the last lease of a function is dropped, the worker
/// processes of the function end.
#[derive(Debug)]
pub(crate) struct FunctionLease(Vec<Arc<PythonFunction>>);

impl FunctionLease {
    /// Starts a lease of these functions.
    pub(crate) fn of(functions: &[Arc<PythonFunction>]) -> Self {
        for function in functions {
            function.hire();
        }
        Self(functions.to_vec())
    }
}

impl Drop for FunctionLease {
    fn drop(&mut self) {
        for function in &self.0 {
            function.dismiss();
        }
    }
}
