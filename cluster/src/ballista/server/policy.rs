//! The distribution policy that gives leases to workers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::serde::protobuf::AvailableVcores;
use ballista_core::serde::scheduler::TaskKey;
use ballista_scheduler::cluster::{BoundTask, DistributionPolicy};
use ballista_scheduler::state::execution_graph::{
    ExecutionGraph, TaskDescription, create_task_info,
};
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion::common::Result;
use tokio::time::Instant;

use super::board::{Board, LeasePhase, LeaseRecord};
use super::lease::LeaseExec;
use crate::placement::{FreeWorker, WaitingLease, place};

/// Gives waiting leases to workers with free slots, as [`place`] decides.
#[derive(Debug)]
pub(crate) struct LeasePolicy {
    pub(crate) board: Arc<Board>,
}

/// Returns the lease that `graph` is the job of; `None` if it is another client's job.
pub(crate) fn lease_of(graph: &dyn ExecutionGraph) -> Option<Arc<LeaseRecord>> {
    // The plan of a graph may have been wrapped in the writer of the last stage.
    let plan = graph.physical_plan();
    let lease = plan
        .downcast_ref::<LeaseExec>()
        .or_else(|| match plan.children().as_slice() {
            [input] => input.downcast_ref::<LeaseExec>(),
            _ => None,
        })?;
    lease.record().cloned()
}

/// The job of a lease that waits for a worker.
struct WaitingJob<'a> {
    id: &'a JobId,
    job: &'a JobInfoCache,
    record: Arc<LeaseRecord>,
}

impl LeasePolicy {
    /// Returns the jobs whose lease waits for a worker, with what [`place`] needs to know of each.
    async fn waiting_leases<'a>(
        &self,
        running_jobs: &'a HashMap<JobId, JobInfoCache>,
        now: Instant,
    ) -> (Vec<WaitingJob<'a>>, Vec<WaitingLease>) {
        let mut jobs = Vec::new();
        let mut leases = Vec::new();
        for (id, job) in running_jobs {
            let mut graph = job.execution_graph.write().await;
            let Some(stage) = graph.fetch_running_stage(&[]) else {
                continue;
            };
            let Some(lease) = stage_lease(&stage.plan) else {
                continue;
            };
            let Some(record) = lease.record() else {
                continue;
            };
            match record.phase() {
                LeasePhase::Waiting => {
                    let descriptor = lease.descriptor();
                    let staged = self.board.staged.get(descriptor.affinity);
                    let since = staged.as_ref().map(|staged| staged.since);
                    leases.push(WaitingLease {
                        client: descriptor.client.clone(),
                        order: descriptor.order,
                        affinity: descriptor.affinity,
                        avoid: descriptor.avoid.clone(),
                        staged: staged.map_or_else(Vec::new, |staged| staged.workers),
                        patience: record.patience().state(now, since),
                        stages_most: record.patience().stages_most(),
                    });
                    let record = Arc::clone(record);
                    jobs.push(WaitingJob { id, job, record });
                }
                // Ballista wants to run it again. The client decides that, because it counts the
                // workers that a lease has killed.
                LeasePhase::Assigned(_) => record.lose(),
                LeasePhase::Lost(_) | LeasePhase::Ended => {}
            }
        }
        (jobs, leases)
    }
}

#[async_trait::async_trait]
impl DistributionPolicy for LeasePolicy {
    async fn bind_tasks(
        &self,
        mut budgets: Vec<&mut AvailableVcores>,
        running_jobs: Arc<HashMap<JobId, JobInfoCache>>,
    ) -> Result<Vec<BoundTask>> {
        let now = Instant::now();
        let (jobs, leases) = self.waiting_leases(&running_jobs, now).await;
        // A worker that is not watched may be an executor that knows no leases.
        let known: BTreeSet<String> = self
            .board
            .watched_workers()
            .into_iter()
            .map(|worker| worker.id)
            .collect();
        budgets.retain(|budget| known.contains(&budget.executor_id));
        let free: Vec<FreeWorker> = budgets
            .iter()
            .map(|budget| FreeWorker {
                id: budget.executor_id.clone(),
                slots: budget.vcores,
            })
            .collect();
        let mut bound = Vec::new();
        let placement = place(&leases, &free, &known, &self.board.running());
        for (lease, worker) in placement.placed {
            let WaitingJob { id, job, record } = &jobs[lease];
            if let Some(task) = bind(id, job, budgets[worker]).await {
                let WaitingLease {
                    affinity,
                    stages_most,
                    ..
                } = leases[lease];
                let (staged, worker) = (&self.board.staged, &free[worker].id);
                if staged.note_run(affinity, worker, stages_most, &known, now) {
                    record.stage(now);
                }
                bound.push(task);
            }
        }
        // Workers that begin to stage data have been noted: leases that need the data wait anew.
        for lease in placement.held {
            let staged = self.board.staged.get(leases[lease].affinity);
            jobs[lease]
                .record
                .hold(now, staged.map(|staged| staged.since));
        }
        Ok(bound)
    }

    fn name(&self) -> &'static str {
        "forebay leases"
    }
}

/// Returns the lease of a stage, whose plan is a shuffle writer over it.
fn stage_lease(plan: &Arc<dyn datafusion::physical_plan::ExecutionPlan>) -> Option<&LeaseExec> {
    match plan.children().as_slice() {
        [input] => input.downcast_ref::<LeaseExec>(),
        _ => None,
    }
}

/// Gives the only task of `job` to the worker of `budget`. Follows Ballista's `bind_one`.
async fn bind(
    job_id: &JobId,
    job: &JobInfoCache,
    budget: &mut AvailableVcores,
) -> Option<BoundTask> {
    let mut graph = job.execution_graph.write().await;
    let session_id = graph.session_id().to_owned();
    let stage = graph.fetch_running_stage(&[])?;
    let record = Arc::clone(stage_lease(&stage.plan)?.record()?);
    if !record.assign(&budget.executor_id) {
        return None;
    }
    let partitions = stage.pending.next_slice(usize::MAX);
    let task_id = stage.task_infos.len();
    let failures = partitions
        .iter()
        .filter_map(|&id| stage.task_failure_numbers.get(id));
    let task_attempt = failures.copied().max().unwrap_or(0);
    let mut info = create_task_info(budget.executor_id.clone(), task_id);
    info.global_input_partition_ids.clone_from(&partitions);
    info.vcores_consumed = 1;
    stage.task_infos.push(info);
    budget.vcores -= 1;
    let task = TaskDescription {
        session_id,
        key: TaskKey {
            job_id: job_id.clone(),
            stage_id: stage.stage_id,
            task_id,
        },
        stage_attempt_num: stage.stage_attempt_num,
        task_attempt,
        global_input_partition_ids: partitions,
        vcores_consumed: 1,
        plan: Arc::clone(&stage.plan),
        session_config: Arc::clone(&stage.session_config),
    };
    Some((budget.executor_id.clone(), task))
}
