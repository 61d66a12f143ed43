//! The errors of a client, from the answers of the scheduler.

use tonic::{Code, Status};

use super::error::describe;
use super::tls::handshake_advice;
use super::wire::{FailureKind, LeaseFailure};
use crate::engine::{EngineError, WorkerId};

/// Returns the error for a failure that the scheduler reports.
pub(crate) fn from_failure(failure: LeaseFailure) -> EngineError {
    let kind = failure.kind();
    let cause = failure.cause;
    let worker = Some(failure.worker)
        .filter(|worker| !worker.is_empty())
        .map(WorkerId);
    match (kind, worker) {
        (FailureKind::WorkerUnfit, Some(worker)) => EngineError::WorkerUnfit { worker, cause },
        (FailureKind::WorkerLost | FailureKind::WorkerUnfit, worker) => {
            EngineError::WorkerLost { worker, cause }
        }
        (FailureKind::Unavailable, _) => EngineError::Unavailable { cause },
        (FailureKind::Refused, _) => EngineError::Refused { cause },
    }
}

/// Returns the error for the answer `status` of the scheduler.
pub(crate) fn from_status(status: &Status) -> EngineError {
    let mut cause = status.message().to_owned();
    if let Some(source) = std::error::Error::source(status) {
        cause = format!("{cause}: {}", describe(source));
    }
    // To try again does not help.
    if let Some(advice) = handshake_advice(&cause) {
        let cause = format!("{advice} ({cause})");
        return EngineError::Refused { cause };
    }
    match status.code() {
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::InvalidArgument
        | Code::OutOfRange
        | Code::Unimplemented => EngineError::Refused {
            cause: status.message().to_owned(),
        },
        _ => EngineError::Unavailable { cause },
    }
}
