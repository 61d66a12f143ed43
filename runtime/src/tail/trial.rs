//! The trial of host functions, which decides by the first rows of a run whether a function is at
//! fault or the data.

use std::collections::BTreeSet;

use super::failure::Failure;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowErrors, SlotError};

/// A function that failed in each of this many first rows is at fault.
const ROWS: u64 = 100;

/// Trial of the host functions over the rows of a run, in stream order. The trial ends with the
/// first row that succeeds or fails in a different way.
///
/// Like the error budget, the trial covers only the rows of one run, which may be those of one rank
/// or one data-loader worker, and only those after the point of resumption.
#[derive(Debug, Default)]
pub(crate) struct FunctionTrial {
    /// Names of the host functions on trial; empty after the end of the trial.
    functions: BTreeSet<String>,
    /// True if the run has all rows of its epochs, and not only the rows of one rank or worker.
    has_all: bool,
    rows: u64,
    /// The first failure, and its kind, which all rows so far share.
    first: Option<(Failure, String)>,
}

impl FunctionTrial {
    /// Starts a trial of `functions`. `has_all` is true if the run begins at the start of an epoch
    /// and has all rows of its epochs.
    pub(crate) fn of(functions: BTreeSet<String>, has_all: bool) -> Self {
        Self {
            functions,
            has_all,
            ..Self::default()
        }
    }

    /// Inspects the next `own` rows, whose errors are in `errors`. `failure` returns the
    /// description of a failed row.
    ///
    /// # Errors
    /// Fails if all of the first [`ROWS`] rows failed in one function in the same way.
    pub(super) fn see(
        &mut self,
        own: usize,
        errors: &RowErrors,
        failure: impl Fn(usize, &SlotError) -> Failure,
    ) -> Result<()> {
        for row in 0..own {
            if self.functions.is_empty() {
                return Ok(());
            }
            let errors = errors.get(&row).map(Vec::as_slice).unwrap_or_default();
            let of_functions = errors
                .iter()
                .filter(|e| self.functions.contains(&e.operator));
            let Some(error) = of_functions.min_by_key(|e| e.column) else {
                self.functions.clear();
                return Ok(());
            };
            match &self.first {
                None => self.first = Some((failure(row, error), kind(&error.cause).to_owned())),
                Some((first, known)) => {
                    if (first.operator.as_str(), known.as_str())
                        != (&error.operator, kind(&error.cause))
                    {
                        self.functions.clear();
                        return Ok(());
                    }
                }
            }
            self.rows += 1;
            if self.rows == ROWS {
                return self.end();
            }
        }
        Ok(())
    }

    /// Ends the trial; called at the latest after the first epoch. If the run has only a part of an
    /// epoch's rows (of one rank, of one worker, or resumed), a few failed rows prove nothing,
    /// because the other rows may succeed.
    ///
    /// # Errors
    /// Fails if all rows so far failed in one function in the same way.
    pub(crate) fn end(&mut self) -> Result<()> {
        let is_over = std::mem::take(&mut self.functions).is_empty();
        if is_over || self.rows < ROWS && !self.has_all {
            return Ok(());
        }
        match self.first.take() {
            None => Ok(()),
            Some((first, kind)) => Err(Error::Function {
                function: first.operator.clone(),
                kind,
                rows: self.rows,
                first: Box::new(first),
            }),
        }
    }
}

/// Returns the kind of a host function's failure: the part of `cause` before the first colon, such
/// as an exception type.
fn kind(cause: &str) -> &str {
    let line = cause.lines().next().unwrap_or_default();
    line.split(':').next().unwrap_or_default()
}
