//! Errors of segments as data, which a worker sends to the client.

use datafusion::common::DataFusionError;
use forebay_runtime::error::{Error, SpillError};
use forebay_udfs::FunctionFault;
use forebay_udfs::room::NoRoom;
use serde::{Deserialize, Serialize};

/// The error of a segment that cannot be read or computed: a damaged file, too little memory, or a
/// broken invariant. Errors of single rows are part of a segment's rows instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentFailure {
    /// A source, an operator or a setting is at fault.
    User(String),
    /// An invariant of Forebay is broken.
    Internal(String),
    /// A function of the host language is at fault.
    Function {
        /// Name of the function.
        function: String,
        /// The message, possibly followed by the stack frames of the user's code.
        message: String,
    },
    /// The memory limit of the worker is too small for an image.
    Room {
        /// Bytes that the image needs.
        needed: u64,
        /// The memory limit of the worker in bytes.
        limit: u64,
        /// The smallest memory limit in bytes under which the image fits.
        minimum: u64,
    },
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error that a worker sent. It has the text and the class that it has on the worker.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SentError(String);

impl SegmentFailure {
    /// Describes an error.
    pub fn of(error: &Error) -> Self {
        match error {
            &Error::Room(NoRoom {
                needed,
                limit,
                minimum,
            }) => Self::Room {
                needed,
                limit,
                minimum,
            },
            Error::Engine(error) => match error.find_root() {
                DataFusionError::External(source) if let Some(fault) = fault_of(source) => {
                    Self::Function {
                        function: fault.function.clone(),
                        message: fault.message.clone(),
                    }
                }
                DataFusionError::Internal(cause) => {
                    let cause = cause.split(DataFusionError::BACK_TRACE_SEP).next();
                    Self::Internal(cause.unwrap_or_default().to_owned())
                }
                _ => Self::User(forebay_planner::error::message_of(error)),
            },
            error => Self::User(error.to_string()),
        }
    }

    /// Converts the failure back to an error with the same text and the same class.
    pub fn into_error(self) -> Error {
        match self {
            Self::User(text) => Error::Engine(DataFusionError::External(Box::new(SentError(text)))),
            Self::Internal(text) => Error::Engine(DataFusionError::Internal(text)),
            Self::Function { function, message } => {
                let fault = FunctionFault {
                    function,
                    message,
                    is_of_machine: false,
                };
                Error::Engine(DataFusionError::External(Box::new(fault)))
            }
            Self::Room {
                needed,
                limit,
                minimum,
            } => Error::Room(NoRoom {
                needed,
                limit,
                minimum,
            }),
        }
    }
}

/// Returns the reason why this machine cannot compute a segment that others may compute; `None` if
/// the segment fails everywhere.
pub(crate) fn unfit_cause(error: &Error) -> Option<String> {
    let Error::Engine(error) = error else {
        return None;
    };
    match error.find_root() {
        DataFusionError::External(source) => {
            let fault = fault_of(source).filter(|fault| fault.is_of_machine);
            let spill = source.downcast_ref::<SpillError>();
            { fault.map(ToString::to_string) }.or_else(|| spill.map(ToString::to_string))
        }
        _ => None,
    }
}

fn fault_of(error: &BoxError) -> Option<&FunctionFault> {
    error.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(is_of_machine: bool) -> FunctionFault {
        FunctionFault {
            function: "lab.score".into(),
            message: "expected 3 rows, found 2".into(),
            is_of_machine,
        }
    }

    #[test]
    fn a_fault_of_the_machine_is_told_apart() {
        let error = DataFusionError::External(Box::new(fault(true))).context("t.csv");
        let cause = unfit_cause(&Error::Engine(error)).unwrap();
        assert_eq!(cause, "lab.score: expected 3 rows, found 2");
    }

    #[test]
    fn an_error_keeps_its_text_and_its_class() {
        let errors = [
            Error::Engine(DataFusionError::Execution("t.csv, row 3: ragged".into())),
            Error::Engine(DataFusionError::Internal("a row has no window".into())),
            Error::Engine(DataFusionError::Execution("ragged".into()).context("t.csv")),
            Error::Config("too few rows".into()),
            Error::Engine(DataFusionError::External(Box::new(fault(false)))),
            Error::Room(NoRoom {
                needed: 3,
                limit: 2,
                minimum: 4,
            }),
        ];
        for error in errors {
            assert_eq!(unfit_cause(&error), None, "{error}");
            let back = SegmentFailure::of(&error).into_error();
            assert_eq!(back.to_string(), error.to_string());
            assert_eq!(back.is_user(), error.is_user(), "{error}");
        }
    }
}
