//! Declarations of functions: what a plan knows of them.

use arrow::datatypes::{Field, FieldRef};
use datafusion::common::{Result, plan_err};
use serde::{Deserialize, Serialize};

/// The declaration of a Python function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Name of the function in plans and errors.
    pub name: String,
    /// Version of the function's meaning.
    pub version: u32,
    /// True if equal arguments give equal values.
    pub deterministic: bool,
    /// Nanoseconds per row, if declared.
    pub ns_per_row: Option<u64>,
    /// Number of arguments, if declared.
    pub arity: Option<usize>,
    /// Name and type of the value.
    pub value: Field,
    /// Maximum number of rows per call, if declared.
    pub rows: Option<usize>,
    /// Number of processes that compute the function on each machine, if declared. If not, a training
    /// loop's process computes it, and one process on a worker of a cluster does.
    pub processes: Option<usize>,
}

/// Longest and shortest useful duration of a call, in nanoseconds: the run must respond to
/// interrupts between calls, and the overhead of a call should be small.
const CALL: (u64, u64) = (50_000_000, 2_000_000);

/// Minimum number of calls per process, so that all processes finish at about the same time.
const SHARES: usize = 8;

impl Declaration {
    /// Returns the type of the function's values for `arguments`.
    ///
    /// # Errors
    /// Fails if the function declares another number of arguments.
    pub fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        match self.arity {
            Some(arity) if arity != arguments.len() => plan_err!(
                "{} reads {arity} columns, found {} arguments",
                self.name,
                arguments.len()
            ),
            _ => Ok(self.value.clone().into()),
        }
    }

    /// Returns the number of rows per call, of `rows` rows. It depends only on the declaration and on
    /// `rows`. So even a function that, against the rules, looks at other rows gives reproducible
    /// results.
    pub(crate) fn chunk(&self, rows: usize) -> usize {
        let within = |ns: u64, most: usize| match self.ns_per_row {
            Some(cost) => usize::try_from(ns / cost.max(1))
                .unwrap_or(most)
                .clamp(1, most),
            None => most / 8,
        };
        let number = self.processes.unwrap_or(1).max(1);
        let fair = rows.div_ceil(number);
        let size = match (self.rows, self.processes) {
            (Some(own), _) => own,
            (None, None) => within(CALL.0, 8192),
            (None, Some(_)) => {
                let share = rows.div_ceil(SHARES.saturating_mul(number));
                share.max(within(CALL.1, 1024)).min(within(CALL.0, 8192))
            }
        };
        size.min(fair).max(1)
    }
}
