//! The job of a lease in the scheduler: submitted, watched to its end, and cancelled when nobody
//! waits for it.

use std::sync::Arc;
use std::time::Duration;

use ballista_core::JobId;
use ballista_core::serde::protobuf::job_status::Status as Outcome;
use ballista_core::serde::protobuf::{FailedJob, JobStatus, SuccessfulJob};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::Status;

use super::board::{LeasePhase, LeaseRecord, WorkerMap};
use super::context::SchedulerContext;
use super::flight::TICKET;
use super::lease::{LeaseDescriptor, LeaseExec};
use crate::ballista::task;
use crate::ballista::wire::{
    FailureKind, LeaseFailure, LeaseLocation, SubmitEvent, SubmitRequest, SubmitStep, WorkerAddress,
};
use crate::engine::LeaseStaging;

/// Name of the jobs in Ballista's lists.
const JOB_NAME: &str = "forebay lease";

/// Bytes of a lease's payload. Anything larger belongs into a blob, because the scheduler keeps
/// every waiting lease in memory.
const MAX_PAYLOAD: usize = 1 << 20;

/// Number of workers that a lease can avoid, and bytes of the name of a worker or a client.
const MAX_AVOID: usize = 1024;
const MAX_NAME: usize = 256;

/// Size of the queue of a job's states. Ballista drops those that do not fit; a job of one stage
/// has three.
const STATES: usize = 16;

/// The job of a lease. It is cancelled when this value is dropped before its end.
pub(crate) struct LeaseJob {
    context: Arc<SchedulerContext>,
    record: Arc<LeaseRecord>,
    id: JobId,
    /// Workers since the job was submitted.
    workers: watch::Receiver<WorkerMap>,
    /// States of the job; `None` after its end.
    states: Option<mpsc::Receiver<JobStatus>>,
}

impl LeaseJob {
    /// Submits a lease to Ballista.
    pub(crate) async fn submit(
        context: Arc<SchedulerContext>,
        request: SubmitRequest,
    ) -> Result<Self, Status> {
        check_limits(&request)?;
        let staging = LeaseStaging {
            time: Duration::from_nanos(request.staging_nanos),
            is_most: request.stages_most,
        };
        let record = context.board.submit(request.client.clone(), staging);
        let descriptor = LeaseDescriptor {
            payload: request.payload,
            affinity: request.affinity,
            order: request.order,
            avoid: request.avoid,
            client: request.client,
        };
        let plan = LeaseExec::submitted(descriptor, Arc::clone(&record))
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let workers = context.board.workers();
        let (sender, states) = mpsc::channel(STATES);
        let session = Arc::clone(&context.session);
        let id = context
            .ballista
            .submit_physical_plan(JOB_NAME, session, Arc::new(plan), Some(sender))
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(Self {
            context,
            record,
            id,
            workers,
            states: Some(states),
        })
    }

    /// Returns what the client is told: the job's id at once, and its end.
    pub(crate) fn into_events(self) -> impl Stream<Item = Result<SubmitEvent, Status>> + Send {
        let started = SubmitStep::Started(self.id.to_string());
        let event = |step| Ok(SubmitEvent { step: Some(step) });
        let started = stream::iter([event(started)]);
        started.chain(stream::once(self.wait()).map(event))
    }

    /// Waits for the end of the job.
    async fn wait(mut self) -> SubmitStep {
        loop {
            let Some(states) = &mut self.states else {
                return failed(FailureKind::Unavailable, None, "the job has ended");
            };
            tokio::select! {
                biased;
                state = states.recv() => {
                    let step = match state {
                        Some(state) => self.step(state),
                        None => Some(failed(
                            FailureKind::Unavailable, None, "the scheduler dropped the job",
                        )),
                    };
                    if let Some(step) = step {
                        self.states = None;
                        return step;
                    }
                }
                worker = self.record.lost() => {
                    let cause = "it ended, or lost its connection to the scheduler";
                    return failed(FailureKind::WorkerLost, Some(worker), cause);
                }
                changed = self.workers.changed() => {
                    if changed.is_err() {
                        return failed(FailureKind::Unavailable, None, "the scheduler is ending");
                    }
                    if let LeasePhase::Assigned(worker) = self.record.phase()
                        && !self.workers.borrow_and_update().contains_key(&worker)
                    {
                        self.record.lose();
                    }
                }
            }
        }
    }

    /// Returns the end of the job, if `state` is one.
    fn step(&self, state: JobStatus) -> Option<SubmitStep> {
        match state.status? {
            Outcome::Successful(job) => Some(self.finished(job)),
            Outcome::Failed(job) => Some(self.failed(&job)),
            Outcome::Queued(_) | Outcome::Running(_) => None,
        }
    }

    fn finished(&self, job: SuccessfulJob) -> SubmitStep {
        let location = job.partition_location.into_iter().next();
        let Some(worker) = location.and_then(|location| location.executor_meta) else {
            let cause = "the job has ended without a result";
            return failed(FailureKind::Unavailable, None, cause);
        };
        self.record.note_result(Instant::now());
        let ticket = [TICKET, self.id.as_str().as_bytes()].concat();
        SubmitStep::Finished(LeaseLocation {
            worker: Some(WorkerAddress {
                id: worker.id,
                host: worker.host,
                port: worker.port,
            }),
            ticket: Bytes::from(ticket),
        })
    }

    /// Returns the class of a failure. Failures of a lease are part of its result, so this is one
    /// of the cluster. Ballista tells them apart by their messages only.
    fn failed(&self, job: &FailedJob) -> SubmitStep {
        let worker = match self.record.phase() {
            LeasePhase::Assigned(worker) | LeasePhase::Lost(worker) => Some(worker),
            LeasePhase::Waiting | LeasePhase::Ended => None,
        };
        let kind = if job.error.contains("could not be prepared or was rejected") {
            FailureKind::WorkerUnfit
        } else if worker.is_some() {
            FailureKind::WorkerLost
        } else if job.error.contains("all executors were lost") {
            FailureKind::Unavailable
        } else {
            FailureKind::Refused
        };
        failed(kind, worker, &job.error)
    }
}

impl Drop for LeaseJob {
    fn drop(&mut self) {
        /// Ballista ignores the cancelling of a job that it is still planning, so it is repeated.
        const PAUSE: Duration = Duration::from_millis(200);
        const TRIES: usize = 50;

        self.record.end();
        let Some(mut states) = self.states.take() else {
            return;
        };
        let (context, id) = (Arc::clone(&self.context), self.id.clone());
        let cancel = async move {
            for _ in 0..TRIES {
                if let Err(error) = context.ballista.cancel_job(id.clone()).await {
                    tracing::warn!("cannot cancel job {id}: {error}");
                }
                if tokio::time::timeout(PAUSE, ended(&mut states))
                    .await
                    .is_ok()
                {
                    return;
                }
            }
        };
        drop(task::start(
            &self.context.runtime,
            "cancelling a lease",
            cancel,
        ));
    }
}

/// Waits for the last state of a job.
async fn ended(states: &mut mpsc::Receiver<JobStatus>) {
    while let Some(state) = states.recv().await {
        if matches!(
            state.status,
            Some(Outcome::Successful(_) | Outcome::Failed(_))
        ) {
            return;
        }
    }
}

fn failed(kind: FailureKind, worker: Option<String>, cause: &str) -> SubmitStep {
    SubmitStep::Failed(LeaseFailure {
        kind: kind.into(),
        worker: worker.unwrap_or_default(),
        cause: cause.to_owned(),
    })
}

fn check_limits(request: &SubmitRequest) -> Result<(), Status> {
    let SubmitRequest {
        payload,
        avoid,
        client,
        ..
    } = request;
    if payload.len() > MAX_PAYLOAD {
        return Err(Status::invalid_argument(format!(
            "the lease has {} bytes, and at most {MAX_PAYLOAD} are taken; put them into a blob",
            payload.len()
        )));
    }
    if avoid.len() > MAX_AVOID
        || avoid
            .iter()
            .chain([client])
            .any(|name| name.len() > MAX_NAME)
    {
        return Err(Status::invalid_argument(format!(
            "the lease avoids more than {MAX_AVOID} workers, or a name has more than {MAX_NAME} \
             bytes"
        )));
    }
    Ok(())
}
