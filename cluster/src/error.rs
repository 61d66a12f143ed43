//! The errors of a run on a cluster.

use std::time::Duration;

use datafusion::common::DataFusionError;
use forebay_planner::wire::WireError;
use forebay_runtime::error::Error;

use crate::engine::WorkerId;
use crate::message::MessageError;

/// The reason why a pipeline cannot be sent to workers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A part of the plan cannot be sent.
    #[error(transparent)]
    Plan(#[from] WireError),
    /// A function of the host language has no code that can be sent.
    #[error("function \"{function}\" cannot be sent to workers: {cause}")]
    Function {
        /// Name of the function.
        function: String,
        /// The reason.
        cause: String,
    },
    /// The functions cannot be encoded.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// The reason why a cluster could not compute a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The cluster refused a lease or the client.
    #[error("the cluster refuses the run: {cause}")]
    Refused {
        /// The reason.
        cause: String,
    },
    /// The scheduler could not be reached for too long.
    #[error(
        "the cluster has been unavailable for {} s: {cause}; check that its scheduler runs and listens",
        away.as_secs()
    )]
    Unavailable {
        /// Time since the first failure.
        away: Duration,
        /// The last failure.
        cause: String,
    },
    /// Several workers cannot compute the same lease, or no other worker is left to try it.
    #[error("no worker can compute segment {sequence}: {}", reasons_of(reasons))]
    Unfit {
        /// Number of the first segment of the lease.
        sequence: u64,
        /// The workers that tried, each with its reason.
        reasons: Vec<(WorkerId, String)>,
    },
    /// No worker answers a request that a client made before a run.
    #[error("no worker can read {what}: {}", reasons_of(reasons))]
    Unanswered {
        /// Description of the result.
        what: String,
        /// The workers that tried, each with its reason.
        reasons: Vec<(WorkerId, String)>,
    },
    /// Workers have different stores at the location of a cache.
    #[error(
        "cache_dir is not shared: '{dir}' has to be the same folder on all workers; {}; mount one folder \
         everywhere, and map it with --data if it has another place",
        reasons_of(reasons)
    )]
    CacheNotShared {
        /// Location of the store, as the client names it.
        dir: String,
        /// The workers that do not share it, each with the reason.
        reasons: Vec<(WorkerId, String)>,
    },
    /// Workers end whenever they compute some rows.
    #[error("{workers} workers ended while they computed {rows}; the last: {cause}")]
    Poison {
        /// Description of the rows.
        rows: String,
        /// Number of workers that ended.
        workers: u64,
        /// Description of the last loss.
        cause: String,
    },
}

/// Converts an error of the cluster to the error of a run.
pub(crate) fn lost(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Engine(DataFusionError::External(Box::new(error)))
}

fn reasons_of(reasons: &[(WorkerId, String)]) -> String {
    let texts = reasons
        .iter()
        .map(|(worker, cause)| format!("worker {}: {cause}", worker.0));
    texts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_each_worker_with_its_reason() {
        let reasons = vec![
            (WorkerId("a".into()), "no mount".into()),
            (WorkerId("b".into()), "disk full".into()),
        ];
        let error = ClusterError::Unfit {
            sequence: 7,
            reasons,
        };
        assert_eq!(
            error.to_string(),
            "no worker can compute segment 7: worker a: no mount; worker b: disk full"
        );
    }
}
