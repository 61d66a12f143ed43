//! Requests to one particular worker.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use tokio::time::sleep;

use crate::engine::{EngineError, LeaseEngine, LeaseRequest, LeaseStaging, WorkerId};
use crate::lease::LeaseSummary;
use crate::request::WorkerRequest;

/// Number of workers that are asked at the same time.
const AT_ONCE: usize = 32;
/// Number of times that a worker that lost its answer is asked.
const TRIES: usize = 3;
/// Time between two looks whether a worker is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Has every worker of `workers` answer `request`, and returns the answers in any order. A worker
/// that ends, or cannot answer, has none; the reason is logged.
pub(crate) async fn ask_all(
    engine: &dyn LeaseEngine,
    workers: &[WorkerId],
    request: &WorkerRequest,
) -> Result<Vec<(WorkerId, LeaseSummary)>, EngineError> {
    let payload = request.encode().map_err(|error| EngineError::Refused {
        cause: error.to_string(),
    })?;
    let payload = Bytes::from(payload);
    let asked = workers.iter().map(|worker| {
        let asked = ask(engine, worker, payload.clone());
        async move { (worker, asked.await) }.boxed()
    });
    let asked: Vec<BoxFuture<'_, _>> = asked.collect();
    let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
    let mut found = Vec::with_capacity(workers.len());
    while let Some((worker, answer)) = answers.next().await {
        match answer {
            Ok(summary) => found.push((worker.clone(), summary)),
            Err(cause) => tracing::debug!("worker {} does not answer: {cause}", worker.0),
        }
    }
    Ok(found)
}

/// Has `worker` answer a request. Fails with the reason if the worker ends or cannot answer.
async fn ask(
    engine: &dyn LeaseEngine,
    worker: &WorkerId,
    payload: Bytes,
) -> Result<LeaseSummary, String> {
    let mut cause = "it has ended".to_owned();
    for _ in 0..TRIES {
        let workers = engine.workers().await.map_err(|error| error.to_string())?;
        if !workers.contains(worker) {
            break;
        }
        let avoid = workers.into_iter().filter(|other| other != worker);
        let lease = LeaseRequest {
            payload: payload.clone(),
            affinity: 0,
            staging: LeaseStaging::default(),
            order: 0,
            avoid: avoid.collect(),
        };
        let answered = tokio::select! {
            answered = engine.submit(lease) => answered,
            () = gone(engine, worker) => break,
        };
        match answered {
            Ok(output) if output.worker == *worker => {
                let summary = LeaseSummary::decode(&output.summary);
                return summary.map_err(|error| error.to_string());
            }
            // A worker that joined the cluster took the request.
            Ok(_) => cause = "other workers answer".to_owned(),
            Err(error @ EngineError::Unavailable { .. }) => {
                cause = error.to_string();
                sleep(LOOK).await;
            }
            Err(error) => cause = error.to_string(),
        }
    }
    Err(cause)
}

/// Returns when the cluster does not have `worker` any more.
async fn gone(engine: &dyn LeaseEngine, worker: &WorkerId) {
    loop {
        sleep(LOOK).await;
        if let Ok(workers) = engine.workers().await
            && !workers.contains(worker)
        {
            return;
        }
    }
}
