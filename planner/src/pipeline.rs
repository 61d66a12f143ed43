//! A planned pipeline, from either front end.

use datafusion::logical_expr::LogicalPlan;

use crate::clauses::Clauses;

/// A pipeline: a plan over stored rows, and what happens to its rows on the way to the trainer.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Its name, if it was registered.
    pub name: Option<String>,
    /// The plan as written: types are checked and coerced, nothing is optimised.
    pub plan: LogicalPlan,
    /// The training clauses.
    pub clauses: Clauses,
    /// The SQL text, if it came from text.
    pub text: Option<String>,
}

impl Pipeline {
    /// Whether the rows come in another order, or other rows, than those of the plan alone. Such a
    /// pipeline cannot be inlined into another one.
    pub fn reorders(&self) -> bool {
        self.clauses.shuffle.is_some() || self.clauses.skip > 0 || self.clauses.take.is_some()
    }
}
