//! Ballista's record of jobs, which removes the data of jobs other than leases.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ballista_core::error::Result;
use ballista_core::serde::protobuf::JobStatus;
use ballista_core::serde::protobuf::job_status::Status;
use ballista_core::{JobId, JobStatusSubscriber};
use ballista_scheduler::cluster::memory::InMemoryJobState;
use ballista_scheduler::cluster::{JobState, JobStateEventStream};
use ballista_scheduler::state::execution_graph::ExecutionGraphBox;
use ballista_scheduler::state::executor_manager::ExecutorManager;
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio::runtime::Handle;

use super::policy::lease_of;
use crate::ballista::task;

/// Time for which the data of a finished job stays on its workers, so that the client can fetch it.
const DATA_TIMEOUT: Duration = Duration::from_secs(60);

/// Ballista's record of jobs in memory. Ballista can remove the data of finished jobs itself, but
/// would send a request to every worker for every lease, which has no data.
pub(crate) struct ClusterJobs {
    ballista: InMemoryJobState,
    runtime: Handle,
    workers: Arc<OnceLock<ExecutorManager>>,
}

impl ClusterJobs {
    /// Extends `ballista`. The data of jobs is removed once `workers` are known.
    pub(crate) fn new(ballista: InMemoryJobState, workers: Arc<OnceLock<ExecutorManager>>) -> Self {
        Self {
            ballista,
            runtime: Handle::current(),
            workers,
        }
    }

    fn remove_data_later(&self, job_id: &JobId) {
        let (workers, job_id) = (Arc::clone(&self.workers), job_id.clone());
        let remove = async move {
            tokio::time::sleep(DATA_TIMEOUT).await;
            if let Some(workers) = workers.get() {
                workers.clean_up_job_data(job_id);
            }
        };
        drop(task::start(
            &self.runtime,
            "removing the data of a job",
            remove,
        ));
    }
}

#[async_trait::async_trait]
impl JobState for ClusterJobs {
    async fn save_job(&self, job_id: &JobId, graph: &ExecutionGraphBox) -> Result<()> {
        let is_successful = matches!(graph.status().status, Some(Status::Successful(_)));
        // Ballista removes the data of failed jobs at once.
        if is_successful && lease_of(graph.as_ref()).is_none() {
            self.remove_data_later(job_id);
        }
        self.ballista.save_job(job_id, graph).await
    }

    fn accept_job(&self, job_id: &JobId, job_name: &str, queued_at: u64) -> Result<()> {
        self.ballista.accept_job(job_id, job_name, queued_at)
    }

    fn pending_job_number(&self) -> usize {
        self.ballista.pending_job_number()
    }

    async fn submit_job(
        &self,
        job_id: JobId,
        graph: &ExecutionGraphBox,
        subscriber: Option<JobStatusSubscriber>,
    ) -> Result<()> {
        self.ballista.submit_job(job_id, graph, subscriber).await
    }

    async fn get_jobs(&self) -> Result<HashSet<JobId>> {
        self.ballista.get_jobs().await
    }

    async fn get_all_jobs(&self) -> Result<HashSet<JobId>> {
        self.ballista.get_all_jobs().await
    }

    async fn get_job_status(&self, job_id: &JobId) -> Result<Option<JobStatus>> {
        self.ballista.get_job_status(job_id).await
    }

    async fn get_execution_graph(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.ballista.get_execution_graph(job_id).await
    }

    async fn fail_unscheduled_job(&self, job_id: &JobId, reason: String) -> Result<()> {
        self.ballista.fail_unscheduled_job(job_id, reason).await
    }

    async fn remove_job(&self, job_id: &JobId) -> Result<()> {
        self.ballista.remove_job(job_id).await
    }

    async fn try_acquire_job(&self, job_id: &JobId) -> Result<Option<ExecutionGraphBox>> {
        self.ballista.try_acquire_job(job_id).await
    }

    async fn job_state_events(&self) -> Result<JobStateEventStream> {
        self.ballista.job_state_events().await
    }

    async fn create_or_update_session(
        &self,
        session_id: &str,
        config: &SessionConfig,
    ) -> Result<Arc<SessionContext>> {
        self.ballista
            .create_or_update_session(session_id, config)
            .await
    }

    async fn remove_session(&self, session_id: &str) -> Result<()> {
        self.ballista.remove_session(session_id).await
    }

    fn produce_config(&self) -> SessionConfig {
        self.ballista.produce_config()
    }
}
