//! Ballista's record of executors, extended by leases.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::ExecutorHeartbeat;
use ballista_core::serde::scheduler::{ExecutorData, ExecutorMetadata};
use ballista_scheduler::cluster::memory::InMemoryClusterState;
use ballista_scheduler::cluster::{BoundTask, ClusterState, ClusterStateEventStream, ExecutorSlot};
use ballista_scheduler::config::TaskDistributionPolicy;
use ballista_scheduler::state::task_manager::JobInfoCache;

use super::board::Board;
use super::policy::{LeasePolicy, lease_of};
use crate::ballista::wire::WorkerAddress;

/// Ballista's record of executors in memory. It keeps the workers of a [`Board`] current, and
/// shares the slots between leases, which [`LeasePolicy`] places, and all other jobs.
pub(crate) struct ClusterMembers {
    ballista: InMemoryClusterState,
    board: Arc<Board>,
    leases: TaskDistributionPolicy,
    /// `true` if leases choose their slots before other jobs the next time. They take turns.
    is_turn_of_leases: AtomicBool,
    /// `true` if only workers that have shown the token get tasks.
    needs_token: bool,
}

impl ClusterMembers {
    /// Creates the record of a cluster without workers.
    pub(crate) fn new(board: Arc<Board>, needs_token: bool) -> Self {
        let policy = LeasePolicy {
            board: Arc::clone(&board),
        };
        Self {
            ballista: InMemoryClusterState::default(),
            board,
            leases: TaskDistributionPolicy::Custom(Arc::new(policy)),
            is_turn_of_leases: AtomicBool::new(true),
            needs_token,
        }
    }

    /// Returns the executors of `executors` (`None` is all) that may have tasks.
    fn trusted(&self, executors: Option<HashSet<String>>) -> Option<HashSet<String>> {
        if !self.needs_token {
            return executors;
        }
        let watched = self.board.watched_workers().into_iter();
        let ids = watched.map(|worker| worker.id);
        Some(match executors {
            Some(executors) => ids.filter(|id| executors.contains(id)).collect(),
            None => ids.collect(),
        })
    }

    fn add(&self, worker: &ExecutorMetadata) {
        self.board.add_worker(WorkerAddress {
            id: worker.id.clone(),
            host: worker.host.clone(),
            port: worker.port.into(),
        });
    }
}

#[async_trait::async_trait]
impl ClusterState for ClusterMembers {
    async fn init(&self) -> Result<()> {
        self.ballista.init().await
    }

    async fn bind_schedulable_tasks(
        &self,
        distribution: TaskDistributionPolicy,
        active_jobs: Arc<HashMap<JobId, JobInfoCache>>,
        executors: Option<HashSet<String>>,
    ) -> Result<Vec<BoundTask>> {
        let executors = self.trusted(executors);
        let mut leases = HashMap::new();
        let mut others = HashMap::new();
        for (id, job) in active_jobs.iter() {
            let is_lease = lease_of(job.execution_graph.read().await.as_ref()).is_some();
            let group = if is_lease { &mut leases } else { &mut others };
            group.insert(id.clone(), job.clone());
        }
        let mut groups = [(self.leases.clone(), leases), (distribution, others)];
        if !groups.iter().any(|(_, jobs)| jobs.is_empty())
            && !self.is_turn_of_leases.fetch_xor(true, Ordering::Relaxed)
        {
            groups.reverse();
        }
        let mut bound = Vec::new();
        for (policy, jobs) in groups {
            if !jobs.is_empty() {
                let jobs = Arc::new(jobs);
                let bind = self
                    .ballista
                    .bind_schedulable_tasks(policy, jobs, executors.clone());
                bound.extend(bind.await?);
            }
        }
        Ok(bound)
    }

    async fn unbind_tasks(&self, executor_slots: Vec<ExecutorSlot>) -> Result<()> {
        self.ballista.unbind_tasks(executor_slots).await
    }

    async fn register_executor(
        &self,
        metadata: ExecutorMetadata,
        spec: ExecutorData,
    ) -> Result<()> {
        self.ballista
            .register_executor(metadata.clone(), spec)
            .await?;
        self.add(&metadata);
        Ok(())
    }

    async fn save_executor_metadata(&self, metadata: ExecutorMetadata) -> Result<()> {
        self.ballista
            .save_executor_metadata(metadata.clone())
            .await?;
        self.add(&metadata);
        Ok(())
    }

    async fn get_executor_metadata(&self, executor_id: &str) -> Result<ExecutorMetadata> {
        self.ballista.get_executor_metadata(executor_id).await
    }

    async fn registered_executor_metadata(&self) -> Vec<ExecutorMetadata> {
        self.ballista.registered_executor_metadata().await
    }

    async fn save_executor_heartbeat(&self, heartbeat: ExecutorHeartbeat) -> Result<()> {
        self.ballista.save_executor_heartbeat(heartbeat).await
    }

    async fn remove_executor(&self, executor_id: &str) -> Result<()> {
        self.ballista.remove_executor(executor_id).await?;
        self.board.remove_worker(executor_id);
        Ok(())
    }

    fn executor_heartbeats(&self) -> HashMap<String, ExecutorHeartbeat> {
        self.ballista.executor_heartbeats()
    }

    fn get_executor_heartbeat(&self, executor_id: &str) -> Option<ExecutorHeartbeat> {
        self.ballista.get_executor_heartbeat(executor_id)
    }

    async fn cluster_state_events(&self) -> Result<ClusterStateEventStream> {
        self.ballista.cluster_state_events().await
    }
}
