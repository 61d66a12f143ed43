//! The execution engine of a worker: leases go to the handler, everything else to Ballista.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::serde::protobuf::ShuffleWritePartition;
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::SessionConfig;
use forebay_runtime::task::panic_message;
use futures::FutureExt;

use super::lease::LeaseExec;
use super::metrics::WorkerMetrics;
use super::result_store::{LeaseOutcome, ResultStore};
use crate::handler::{BlobSource, HandlerError, LeaseHandler};

/// Handler of the leases of a worker, with the store of their results.
#[derive(Debug, Clone)]
pub(crate) struct LeaseComputer {
    pub(crate) handler: Arc<dyn LeaseHandler>,
    pub(crate) blobs: Arc<dyn BlobSource>,
    pub(crate) results: Arc<ResultStore>,
    pub(crate) metrics: WorkerMetrics,
}

impl LeaseComputer {
    /// Computes a lease, and stores its outcome as that of `job`.
    async fn compute(&self, job: &JobId, payload: Bytes) {
        let (handler, blobs) = (Arc::clone(&self.handler), Arc::clone(&self.blobs));
        let work = async move { handler.compute(payload, blobs).await };
        let running = self.metrics.start_lease();
        let outcome: LeaseOutcome =
            AssertUnwindSafe(work)
                .catch_unwind()
                .await
                .unwrap_or_else(|panic| {
                    let cause = format!("the worker panicked: {}", panic_message(&*panic));
                    tracing::error!(job = job.as_str(), "a lease failed: {cause}");
                    Err(HandlerError::Unfit { cause })
                });
        drop(running);
        self.metrics.end_lease(&outcome);
        if let Err(HandlerError::Unfit { cause }) = &outcome {
            tracing::warn!(
                job = job.as_str(),
                "a lease cannot be computed here: {cause}"
            );
        }
        self.results.put(job.to_string(), outcome).await;
    }
}

/// The execution engine of a worker.
pub(crate) struct WorkerExecution {
    computer: LeaseComputer,
    ballista: DefaultExecutionEngine,
}

impl WorkerExecution {
    /// Creates an engine whose leases `computer` computes.
    pub(crate) fn new(computer: LeaseComputer) -> Self {
        Self {
            computer,
            ballista: DefaultExecutionEngine::new(),
        }
    }
}

impl ExecutionEngine for WorkerExecution {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let children = plan.children();
        if let [child] = children.as_slice()
            && let Some(lease) = child.downcast_ref::<LeaseExec>()
        {
            let payload = lease.descriptor().payload.clone();
            let computer = self.computer.clone();
            return Ok(Arc::new(LeaseStage {
                job: job_id,
                payload,
                computer,
            }));
        }
        drop(children);
        self.ballista.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )
    }
}

/// The only stage of a lease's job.
#[derive(Debug)]
struct LeaseStage {
    job: JobId,
    payload: Bytes,
    computer: LeaseComputer,
}

impl fmt::Display for LeaseStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease of {} bytes", self.payload.len())
    }
}

#[async_trait::async_trait]
impl QueryStageExecutor for LeaseStage {
    async fn execute_query_stage(
        &self,
        _: usize,
        _: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        self.computer.compute(&self.job, self.payload.clone()).await;
        // Ballista needs a partition to say on which executor the result is, and drops empty ones.
        Ok(vec![ShuffleWritePartition {
            partition_id: 0,
            num_batches: 1,
            num_rows: 1,
            num_bytes: 1,
            file_id: None,
            is_sort_shuffle: false,
        }])
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        Vec::new()
    }
}
