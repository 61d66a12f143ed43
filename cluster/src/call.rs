//! Single requests to a worker, outside the window of leases: what a client has to know before a run.

use std::collections::BTreeSet;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::engine::{EngineError, LeaseEngine, LeaseOutput, LeaseRequest, LeaseStaging, WorkerId};
use crate::error::ClusterError;
use crate::lease::LeaseSummary;
use crate::request::WorkerRequest;
use crate::window::{WindowSettings, backoff};

/// A request, and what its repetitions and errors say about it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: WorkerRequest,
    /// Requests with the same affinity key run best on the same worker.
    pub(crate) affinity: u64,
    /// Description of the result in errors, such as `the files of 't.parquet'`.
    pub(crate) what: String,
    /// Workers that have to be avoided.
    pub(crate) avoid: Vec<WorkerId>,
}

/// Has a worker answer a request. Repeats it if the worker ends, on other workers if one is unfit,
/// and while the scheduler cannot be reached.
///
/// # Errors
/// Fails if the cluster refuses the request, or if no worker can answer it.
pub(crate) async fn call(
    engine: &dyn LeaseEngine,
    settings: &WindowSettings,
    call: Call,
) -> Result<(LeaseOutput, LeaseSummary), ClusterError> {
    let refused = |cause: String| ClusterError::Refused { cause };
    let payload = call.request.encode().map_err(|e| refused(e.to_string()))?;
    let payload = Bytes::from(payload);
    let mut repetition = Repetition::default();
    let mut reasons: Vec<(WorkerId, String)> = Vec::new();
    loop {
        let unfit = reasons.iter().map(|(worker, _)| worker);
        let avoid: BTreeSet<&WorkerId> = unfit.chain(&call.avoid).collect();
        let lease = LeaseRequest {
            payload: payload.clone(),
            affinity: call.affinity,
            staging: LeaseStaging::default(),
            order: 0,
            avoid: avoid.into_iter().cloned().collect(),
        };
        match engine.submit(lease).await {
            Ok(output) => match LeaseSummary::decode(&output.summary) {
                Ok(LeaseSummary::Refused(cause)) => return Err(refused(cause)),
                Ok(summary) => return Ok((output, summary)),
                Err(error) => reasons.push((output.worker, error.to_string())),
            },
            Err(EngineError::WorkerUnfit { worker, cause }) => reasons.push((worker, cause)),
            Err(EngineError::Refused { cause }) => return Err(refused(cause)),
            Err(EngineError::WorkerLost { cause, .. }) => {
                repetition.lost(&call.what, cause, settings)?;
                continue;
            }
            Err(EngineError::Unavailable { cause }) => {
                repetition.away(cause, settings).await?;
                continue;
            }
        }
        if reasons.len() >= settings.max_unfit || !has_other(engine, &reasons, &call.avoid).await {
            return Err(ClusterError::Unanswered {
                what: call.what,
                reasons,
            });
        }
    }
}

/// True if the cluster has a worker that has not failed yet, or cannot say.
pub(crate) async fn has_other(
    engine: &dyn LeaseEngine,
    unfit: &[(WorkerId, String)],
    avoid: &[WorkerId],
) -> bool {
    let Ok(workers) = engine.workers().await else {
        return true;
    };
    let is_unfit = |worker: &WorkerId| unfit.iter().any(|(of, _)| of == worker);
    { workers.iter() }.any(|worker| !is_unfit(worker) && !avoid.contains(worker))
}

/// State of the repetitions of a request.
#[derive(Debug, Default)]
struct Repetition {
    losses: u64,
    away: Option<Instant>,
    pauses: u32,
}

impl Repetition {
    /// Notes that a worker ended.
    fn lost(
        &mut self,
        what: &str,
        cause: String,
        settings: &WindowSettings,
    ) -> Result<(), ClusterError> {
        self.losses += 1;
        if self.losses < settings.max_losses {
            return Ok(());
        }
        Err(ClusterError::Poison {
            rows: what.to_owned(),
            workers: self.losses,
            cause,
        })
    }

    /// Notes that the scheduler is unavailable, and waits before the next attempt.
    async fn away(&mut self, cause: String, settings: &WindowSettings) -> Result<(), ClusterError> {
        let away = self.away.get_or_insert_with(Instant::now).elapsed();
        if away > settings.max_outage {
            return Err(ClusterError::Unavailable { away, cause });
        }
        if self.pauses == 0 {
            tracing::warn!("the cluster is unavailable, and is asked again: {cause}");
        }
        sleep(backoff(settings, self.pauses)).await;
        self.pauses += 1;
        Ok(())
    }
}
