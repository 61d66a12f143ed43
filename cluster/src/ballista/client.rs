//! The client's side: a [`LeaseEngine`] whose leases run on a cluster.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_runtime::cache::Compression;
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use tokio::runtime::Handle;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use super::blob_stream::chunks;
use super::client_error::{from_failure, from_status};
use super::connection::{Dialer, authority};
use super::fetch::{FetchError, fetch};
use super::lock::lock;
use super::rpc::{ClusterClient, await_end};
use super::security::Credential;
use super::task;
use super::wire::{
    BlobName, ClientReport, LeaseLocation, SetAsideWorker, SubmitRequest, SubmitStep,
    WorkerAddress, WorkerReport,
};
use super::{ClusterStatus, EngineOptions, StartError};
use crate::engine::{
    BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, StreamReport, WorkerId,
};
use crate::job_spec::RELEASE;

/// Number of connections to workers above which those to lost workers are closed.
const CONNECTIONS: usize = 64;

/// Time that the scheduler has to try a worker that was reported.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of a cluster. It connects when it is first used, and must be used from one Tokio
/// runtime only.
#[derive(Debug, Clone)]
pub struct BallistaEngine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Name of this client, by which the scheduler shares slots fairly.
    client: String,
    endpoint: Endpoint,
    dialer: Dialer,
    credential: Credential,
    compression: Compression,
    max_result: usize,
    scheduler: OnceLock<ClusterClient>,
    /// Connections to workers, by their ids.
    workers: Mutex<HashMap<String, Channel>>,
    /// Last reports of the streams of this client, by their numbers.
    streams: Mutex<BTreeMap<u64, StreamReport>>,
}

impl BallistaEngine {
    /// Creates a client.
    ///
    /// # Errors
    /// Fails if the scheduler's address is malformed.
    pub fn new(options: &EngineOptions) -> Result<Self, StartError> {
        let dialer = options.security.dialer();
        let shared = Shared {
            client: Uuid::new_v4().to_string(),
            endpoint: dialer
                .endpoint(&options.scheduler)
                .map_err(StartError::Option)?,
            dialer,
            credential: options.security.credential()?,
            compression: options.compression,
            max_result: options.max_result,
            scheduler: OnceLock::new(),
            workers: Mutex::default(),
            streams: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Asks the scheduler for the status of the cluster.
    ///
    /// # Errors
    /// Fails if the scheduler cannot be reached, refuses the client, or is of another release.
    pub async fn status(&self) -> Result<ClusterStatus, EngineError> {
        let json = self.shared.scheduler().status().await;
        let json = json.map_err(|status| from_status(&status))?;
        serde_json::from_str(&json).map_err(|error| EngineError::Refused {
            cause: format!(
                "the scheduler's status is malformed ({error}); install the same release on all \
                 machines"
            ),
        })
    }
}

#[async_trait]
impl LeaseEngine for BallistaEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        let hash = BlobHash::of(&blob);
        let scheduler = self.shared.scheduler();
        let name = BlobName {
            hash: Bytes::copy_from_slice(hash.as_bytes()),
        };
        let is_stored = scheduler
            .has_blob(name)
            .await
            .map_err(|s| from_status(&s))?;
        if !is_stored {
            let chunks = stream::iter(chunks(hash, blob));
            scheduler
                .put_blob(chunks)
                .await
                .map_err(|s| from_status(&s))?;
        }
        Ok(hash)
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let shared = Arc::clone(&self.shared);
        async move {
            let location = shared.run(lease).await?;
            shared.fetch(location).await
        }
        .boxed()
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        let list = self
            .shared
            .scheduler()
            .list_workers(self.shared.client_report())
            .await
            .map_err(|s| from_status(&s))?;
        Ok(list
            .workers
            .into_iter()
            .map(|worker| WorkerId(worker.id))
            .collect())
    }

    fn report(&self, report: StreamReport) {
        let mut streams = lock(&self.shared.streams);
        if report.has_ended {
            streams.remove(&report.stream);
        } else {
            streams.insert(report.stream, report);
        }
    }
}

impl Shared {
    fn scheduler(&self) -> &ClusterClient {
        self.scheduler.get_or_init(|| {
            ClusterClient::new(self.endpoint.connect_lazy(), self.credential.clone())
        })
    }

    /// Returns what the scheduler is told about this client.
    fn client_report(&self) -> ClientReport {
        let streams = lock(&self.streams);
        if streams.is_empty() {
            return ClientReport::default();
        }
        let mut report = ClientReport {
            client: self.client.clone(),
            release: RELEASE.to_owned(),
            ..ClientReport::default()
        };
        for stream in streams.values() {
            report.jobs.extend(stream.job.map(|job| job.to_string()));
            report.rows += stream.rows;
            report.rows_per_second += stream.rows_per_second;
            #[expect(clippy::cast_precision_loss, reason = "a mean of few streams")]
            let part = stream.wait_share / streams.len() as f64;
            report.wait_share += part;
            report.leases += stream.leases;
            report.attempts += stream.attempts;
            report.buffer_bytes += stream.buffer_bytes;
            report.buffer_limit += stream.buffer_limit;
            let aside = stream
                .set_aside
                .iter()
                .map(|(worker, cause)| SetAsideWorker {
                    worker: worker.0.clone(),
                    cause: cause.clone(),
                });
            report.set_aside.extend(aside);
        }
        report.jobs.sort_unstable();
        report.jobs.dedup();
        report
    }

    /// Runs a lease, and returns where its result is.
    async fn run(&self, lease: LeaseRequest) -> Result<LeaseLocation, EngineError> {
        let request = SubmitRequest {
            payload: lease.payload,
            affinity: lease.affinity,
            staging_nanos: u64::try_from(lease.staging.time.as_nanos()).unwrap_or(u64::MAX),
            stages_most: lease.staging.is_most,
            order: lease.order,
            avoid: lease.avoid.into_iter().map(|worker| worker.0).collect(),
            client: self.client.clone(),
        };
        let submitted = self.scheduler().submit(request).await;
        let mut events = submitted.map_err(|status| from_status(&status))?;
        while let Some(event) = events.message().await.map_err(|s| from_status(&s))? {
            let outcome = match event.step {
                Some(SubmitStep::Finished(location)) => Ok(location),
                Some(SubmitStep::Failed(failure)) => Err(from_failure(failure)),
                Some(SubmitStep::Started(_)) | None => continue,
            };
            await_end(&mut events).await;
            return outcome;
        }
        Err(EngineError::Unavailable {
            cause: "the scheduler hung up".to_owned(),
        })
    }

    /// Fetches the result of a lease.
    async fn fetch(self: &Arc<Self>, location: LeaseLocation) -> Result<LeaseOutput, EngineError> {
        let Some(address) = location.worker else {
            let cause = "the scheduler does not say where the result is".to_owned();
            return Err(EngineError::Unavailable { cause });
        };
        let channel = self.connection(&address)?;
        let worker = WorkerId(address.id);
        let (ticket, limit) = (location.ticket, self.max_result);
        let output = fetch(
            channel,
            &self.credential,
            &worker,
            ticket,
            self.compression,
            limit,
        );
        match output.await {
            Ok(output) => Ok(output),
            Err(FetchError::Answered(error)) => Err(error),
            Err(FetchError::Broken(error)) => {
                self.report(worker.0);
                Err(error)
            }
        }
    }

    /// Returns the connection to a worker, which is opened when it is first used.
    fn connection(&self, worker: &WorkerAddress) -> Result<Channel, EngineError> {
        let mut connections = lock(&self.workers);
        if let Some(channel) = connections.get(&worker.id) {
            return Ok(channel.clone());
        }
        let channel = self
            .dialer
            .endpoint(&authority(&worker.host, worker.port))
            .map_err(|cause| EngineError::WorkerLost {
                worker: Some(WorkerId(worker.id.clone())),
                cause,
            })?
            .connect_lazy();
        if connections.len() >= CONNECTIONS {
            // Workers that still run are connected again. The ids of lost ones never return.
            connections.clear();
        }
        connections.insert(worker.id.clone(), channel.clone());
        Ok(channel)
    }

    /// Reports that the connection to `worker` broke. The answer is not waited for.
    fn report(self: &Arc<Self>, worker: String) {
        lock(&self.workers).remove(&worker);
        let scheduler = self.scheduler().clone();
        let report = async move {
            let report = scheduler.report_worker(WorkerReport { worker });
            if let Ok(Err(status)) = tokio::time::timeout(REPORT_TIMEOUT, report).await {
                tracing::debug!("cannot report a worker: {status}");
            }
        };
        drop(task::start(
            &Handle::current(),
            "reporting a worker",
            report,
        ));
    }
}
