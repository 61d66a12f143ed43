//! The scheduler's watch over its workers.
//!
//! Ballista notices a dead executor by its missing heartbeats, after seconds. A process that ends
//! also closes its connections, which is noticed at once. So the scheduler keeps a call to each
//! worker open that never ends by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, Result as ActionResult};
use ballista_core::ids::new_instance_id;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_core::serde::protobuf::{ExecutorStoppedParams, UpdateTaskStatusParams};
use bytes::Bytes;
use prost::Message;
use tokio::task::JoinHandle;
use tonic::{Code, Request, Streaming};

use super::board::RegisteredWorker;
use super::client_board::shorten;
use super::connection::explain;
use super::context::SchedulerContext;
use super::watch::{WATCH, WatchAnswer, WatchRequest, WorkerState};
use crate::ballista::connection::{CONNECT_TIMEOUT, authority};
use crate::ballista::task;
use crate::ballista::wire::WorkerAddress;

/// Number of times that a worker is tried before it is removed.
const TRIES: u32 = 2;

/// Number of events of a worker that are kept.
const MAX_EVENTS: usize = 16;

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// The answer of a worker that was tried.
enum Trial {
    /// It runs. The call ends when the worker does.
    Running(Box<Streaming<ActionResult>>),
    /// It cannot be watched: it has another token, or is an executor that knows no leases.
    Unwatchable(String),
    /// It does not answer, or another worker answers in its place.
    Gone(String),
}

/// Watches the workers of `context` until the scheduler ends.
pub(crate) async fn watch_workers(context: Arc<SchedulerContext>) {
    let mut workers = context.board.workers();
    let mut watched: BTreeMap<u64, JoinHandle<()>> = BTreeMap::new();
    loop {
        let current = workers.borrow_and_update().clone();
        let registrations: BTreeSet<u64> =
            current.values().map(|worker| worker.registration).collect();
        watched.retain(|registration, watch| {
            let is_current = registrations.contains(registration);
            if !is_current {
                watch.abort();
            }
            is_current
        });
        for worker in current.into_values() {
            watched.entry(worker.registration).or_insert_with(|| {
                let watch = watch_worker(Arc::clone(&context), worker);
                task::start(&context.runtime, "watching a worker", watch)
            });
        }
        if workers.changed().await.is_err() {
            return;
        }
    }
}

/// Watches `worker` until it is gone, and removes it then. Lets it have leases meanwhile.
async fn watch_worker(context: Arc<SchedulerContext>, worker: RegisteredWorker) {
    let RegisteredWorker {
        address,
        registration,
        ..
    } = worker;
    loop {
        match try_repeatedly(&context, &address).await {
            Trial::Running(mut call) => {
                if !context.board.watch_worker(&address.id, registration) {
                    return;
                }
                offer_slots(&context, &address).await;
                while let Ok(Some(message)) = call.message().await {
                    if let Ok(mut state) = WorkerState::decode(message.body) {
                        shorten(&mut state.release);
                        state.events.truncate(MAX_EVENTS);
                        state.events.iter_mut().for_each(shorten);
                        let board = &context.board;
                        board.annotate(registration, |note| note.state = state);
                    }
                }
            }
            Trial::Unwatchable(cause) => {
                tracing::warn!(worker = address.id, "the worker gets no leases: {cause}");
                let board = &context.board;
                board.annotate(registration, |note| note.refused = Some(cause));
                return;
            }
            Trial::Gone(cause) => return remove(&context, &address, cause).await,
        }
    }
}

/// Makes Ballista look for tasks for `worker`: it did when the worker registered, but no lease
/// could be given to it yet.
async fn offer_slots(context: &SchedulerContext, worker: &WorkerAddress) {
    // Ballista looks for tasks after each report of finished tasks, even if it names none.
    let report = UpdateTaskStatusParams {
        executor_id: worker.id.clone(),
        task_status: vec![],
    };
    let reported = SchedulerGrpc::update_task_status(&context.ballista, Request::new(report));
    if let Err(status) = reported.await {
        tracing::warn!("cannot offer the slots of worker {}: {status}", worker.id);
    }
}

/// Removes `worker` if it does not answer. Returns `true` if it was removed.
pub(crate) async fn remove_if_gone(context: &SchedulerContext, worker: &WorkerAddress) -> bool {
    match try_repeatedly(context, worker).await {
        Trial::Gone(cause) => {
            remove(context, worker, cause).await;
            true
        }
        Trial::Running(_) | Trial::Unwatchable(_) => false,
    }
}

async fn try_repeatedly(context: &SchedulerContext, worker: &WorkerAddress) -> Trial {
    let mut trial = try_worker(context, worker).await;
    for _ in 1..TRIES {
        if !matches!(trial, Trial::Gone(_)) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        trial = try_worker(context, worker).await;
    }
    trial
}

async fn try_worker(context: &SchedulerContext, worker: &WorkerAddress) -> Trial {
    let trial = tokio::time::timeout(CONNECT_TIMEOUT, async {
        let endpoint = match context
            .dialer
            .endpoint(&authority(&worker.host, worker.port))
        {
            Ok(endpoint) => endpoint,
            Err(cause) => return Trial::Unwatchable(cause),
        };
        let channel = match endpoint.connect().await {
            Ok(channel) => channel,
            Err(error) => return Trial::Gone(explain(&error)),
        };
        let nonce = new_instance_id();
        let proof = context.credential.proof(&nonce);
        let body = WatchRequest {
            worker: worker.id.clone(),
            nonce,
        }
        .encode_to_vec();
        let action = Action {
            r#type: WATCH.to_owned(),
            body: Bytes::from(body),
        };
        let mut call = match FlightServiceClient::new(channel).do_action(action).await {
            Ok(call) => call.into_inner(),
            Err(status) if status.code() == Code::Unimplemented => {
                return Trial::Unwatchable("it is an executor that knows no leases".to_owned());
            }
            Err(status) => return Trial::Gone(status.message().to_owned()),
        };
        let answer = match call.message().await {
            Ok(answer) => answer.unwrap_or_default(),
            Err(status) => return Trial::Gone(status.message().to_owned()),
        };
        match WatchAnswer::decode(answer.body) {
            Ok(answer) if proof.is(&answer.proof) => Trial::Running(Box::new(call)),
            _ => Trial::Unwatchable("its token is missing or wrong".to_owned()),
        }
    });
    trial
        .await
        .unwrap_or_else(|_| Trial::Gone("it does not answer".to_owned()))
}

/// Removes `worker`. Its leases are lost, and other jobs run elsewhere.
async fn remove(context: &SchedulerContext, worker: &WorkerAddress, cause: String) {
    tracing::warn!(worker = worker.id, "the worker is removed: {cause}");
    let stopped = ExecutorStoppedParams {
        executor_id: worker.id.clone(),
        reason: cause,
    };
    if let Err(status) = context
        .ballista
        .executor_stopped(Request::new(stopped))
        .await
    {
        tracing::error!("cannot remove worker {}: {status}", worker.id);
    }
}
