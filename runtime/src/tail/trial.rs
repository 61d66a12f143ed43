//! The first rows of a run, by which a function that is itself at fault is told from rows that are damaged.

use std::collections::BTreeSet;

use super::failure::Failure;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowErrors, SlotError};

/// Rows after which a function that failed in all of them is at fault.
const ROWS: u64 = 100;

/// Watches the rows of a run, in stream order, until one of them has a value or fails otherwise.
///
/// Like the error budget, each run watches its own rows: each rank, each worker of a loader, and anew where a run
/// resumes.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The functions that a mistake may be in: those of the host's language. None, once the trial is over.
    functions: BTreeSet<String>,
    /// True for a run that has the rows of whole epochs.
    has_all: bool,
    rows: u64,
    /// The first failure, and the kind of all of them.
    first: Option<(Failure, String)>,
}

impl Trial {
    /// Watches these functions. `has_all` says that the run begins with an epoch, and has all rows of it.
    pub(crate) fn of(functions: BTreeSet<String>, has_all: bool) -> Self {
        Self {
            functions,
            has_all,
            ..Self::default()
        }
    }

    /// Takes the next `own` rows; `failure` tells of one.
    ///
    /// # Errors
    /// With them all of the first rows failed in one function, in one way.
    pub(super) fn see(
        &mut self,
        own: usize,
        errors: &RowErrors,
        failure: impl Fn(usize, &SlotError) -> Result<Failure>,
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
                None => self.first = Some((failure(row, error)?, kind(&error.cause).to_owned())),
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

    /// Ends the trial, with the first epoch at the latest. Fewer rows than are watched say nothing where they are only
    /// those of a rank, of a loader's worker, or behind a token: the others may have values.
    ///
    /// # Errors
    /// All rows failed in one function, in one way.
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

/// The kind of a failure in a host's function: what its cause says before the message.
fn kind(cause: &str) -> &str {
    let line = cause.lines().next().unwrap_or_default();
    line.split(':').next().unwrap_or_default()
}
