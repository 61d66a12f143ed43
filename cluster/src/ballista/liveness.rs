//! The scheduler's watch over its workers.
//!
//! Ballista notices a dead executor by its missing heartbeats, after seconds. A process that ends
//! also closes its connections, which is noticed at once. So the scheduler keeps a call to each
//! worker open that never ends by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, Result as ActionResult};
use ballista_core::serde::protobuf::ExecutorStoppedParams;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use bytes::Bytes;
use tokio::task::JoinHandle;
use tonic::{Code, Request, Streaming};

use super::connection::{CONNECT_TIMEOUT, authority, describe, endpoint};
use super::context::SchedulerContext;
use super::security::Credential;
use super::task;
use super::wire::{WATCH, WorkerAddress};

/// Number of times that a worker is tried before it is removed.
const TRIES: u32 = 2;

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// The answer of a worker that was tried.
enum Trial {
    /// It runs. The call ends when the worker does.
    Running(Box<Streaming<ActionResult>>),
    /// Something else answered, such as an executor that cannot be watched.
    Unwatchable(String),
    /// It does not answer, or another worker answers in its place.
    Gone(String),
}

/// Watches the workers of `context` until the scheduler ends.
pub(crate) async fn watch_workers(context: Arc<SchedulerContext>) {
    let mut workers = context.board.workers();
    let mut watched: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    loop {
        let current = workers.borrow_and_update().clone();
        watched.retain(|id, watch| {
            let is_current = current.contains_key(id);
            if !is_current {
                watch.abort();
            }
            is_current
        });
        for (id, worker) in current {
            watched.entry(id).or_insert_with(|| {
                let watch = watch_worker(Arc::clone(&context), worker);
                task::start(&context.runtime, "watching a worker", watch)
            });
        }
        if workers.changed().await.is_err() {
            return;
        }
    }
}

/// Watches `worker` until it is gone, and removes it then.
async fn watch_worker(context: Arc<SchedulerContext>, worker: WorkerAddress) {
    loop {
        match try_repeatedly(&context.credential, &worker).await {
            Trial::Running(mut call) => while let Ok(Some(_)) = call.message().await {},
            Trial::Unwatchable(cause) => {
                log::info!("worker {} is not watched: {cause}", worker.id);
                return;
            }
            Trial::Gone(cause) => return remove(&context, &worker, cause).await,
        }
    }
}

/// Removes `worker` if it does not answer. Returns `true` if it was removed.
pub(crate) async fn remove_if_gone(context: &SchedulerContext, worker: &WorkerAddress) -> bool {
    match try_repeatedly(&context.credential, worker).await {
        Trial::Gone(cause) => {
            remove(context, worker, cause).await;
            true
        }
        Trial::Running(_) | Trial::Unwatchable(_) => false,
    }
}

async fn try_repeatedly(credential: &Credential, worker: &WorkerAddress) -> Trial {
    let mut trial = try_worker(credential, worker).await;
    for _ in 1..TRIES {
        if !matches!(trial, Trial::Gone(_)) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        trial = try_worker(credential, worker).await;
    }
    trial
}

async fn try_worker(credential: &Credential, worker: &WorkerAddress) -> Trial {
    let trial = tokio::time::timeout(CONNECT_TIMEOUT, async {
        let endpoint = match endpoint(&authority(&worker.host, worker.port)) {
            Ok(endpoint) => endpoint,
            Err(cause) => return Trial::Unwatchable(cause),
        };
        let channel = match endpoint.connect().await {
            Ok(channel) => channel,
            Err(error) => return Trial::Gone(describe(&error)),
        };
        let body = Bytes::from(worker.id.clone());
        let action = credential.request(Action {
            r#type: WATCH.to_owned(),
            body,
        });
        let answer = FlightServiceClient::new(channel).do_action(action).await;
        let mut call = match answer {
            Ok(call) => call.into_inner(),
            Err(status) if matches!(status.code(), Code::Unimplemented | Code::Unauthenticated) => {
                return Trial::Unwatchable(status.message().to_owned());
            }
            Err(status) => return Trial::Gone(status.message().to_owned()),
        };
        match call.message().await {
            Ok(Some(answer)) if answer.body == worker.id.as_bytes() => {
                Trial::Running(Box::new(call))
            }
            Ok(_) => Trial::Gone("another worker has taken its port".to_owned()),
            Err(status) => Trial::Gone(status.message().to_owned()),
        }
    });
    trial
        .await
        .unwrap_or_else(|_| Trial::Gone("it does not answer".to_owned()))
}

/// Removes `worker`. Its leases are lost, and other jobs run elsewhere.
async fn remove(context: &SchedulerContext, worker: &WorkerAddress, cause: String) {
    log::warn!("worker {} is removed: {cause}", worker.id);
    let stopped = ExecutorStoppedParams {
        executor_id: worker.id.clone(),
        reason: cause,
    };
    if let Err(status) = context
        .ballista
        .executor_stopped(Request::new(stopped))
        .await
    {
        log::error!("cannot remove worker {}: {status}", worker.id);
    }
}
