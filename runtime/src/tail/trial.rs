//! The trial of host functions: the first rows of a run show whether a function is at fault rather than the data.

use std::collections::BTreeSet;

use super::failure::Failure;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowErrors, SlotError};

/// Number of rows after which a function that failed in all of them counts as faulty.
const ROWS: u64 = 100;

/// Watches the rows of a run, in stream order, until one of them succeeds or fails in another way.
///
/// Like the error budget, the trial covers the rows of one run: of one rank, of one worker of a
/// data loader, and after the point of resumption.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The host functions on trial. Empty once the trial is over.
    functions: BTreeSet<String>,
    /// True if the run has all rows of its epochs, rather than those of one rank or worker.
    has_all: bool,
    rows: u64,
    /// The first failure, and the kind of failure that all rows share.
    first: Option<(Failure, String)>,
}

impl Trial {
    /// Starts a trial of these functions. `has_all` is true if the run begins with an epoch and has all of its rows.
    pub(crate) fn of(functions: BTreeSet<String>, has_all: bool) -> Self {
        Self {
            functions,
            has_all,
            ..Self::default()
        }
    }

    /// Inspects the next `own` rows, which failed with `errors`. `failure` describes a failed row.
    ///
    /// # Errors
    /// Fails if all of the first rows, including these, failed in one function in the same way.
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

    /// Ends the trial, at the latest after the first epoch. If the run has only a part of an
    /// epoch's rows (one rank, one worker, or resumed), a few failed rows prove nothing: the others
    /// may succeed.
    ///
    /// # Errors
    /// Fails if all rows failed in one function in the same way.
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

/// Returns the kind of a host function's failure: the part of its cause before the message.
fn kind(cause: &str) -> &str {
    let line = cause.lines().next().unwrap_or_default();
    line.split(':').next().unwrap_or_default()
}
