//! One life of a worker's Ballista executor: registered, running tasks, and ended.
//!
//! `start_executor_process` of Ballista would do most of this, but it takes over the process's
//! signals, and after its end no other executor of the process gets tasks.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::ConfigProducer;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::ExecutorStoppedParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_executor::executor::Executor;
use ballista_executor::executor_process::{ExecutorProcessConfig, structure_executor_metadata};
use ballista_executor::executor_server;
use ballista_executor::metrics::LoggingMetricsCollector;
use ballista_executor::shutdown::ShutdownNotifier;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;

use super::codec::LeaseCodec;
use super::connection::{MAX_TASKS, explain};
use super::execution::{LeaseComputer, WorkerExecution};
use super::front::TaskFront;
use crate::ballista::connection::Dialer;
use crate::ballista::error::describe;
use crate::ballista::rpc::ClusterClient;
use crate::ballista::wire::ClientReport;

/// Interval of heartbeats.
const HEARTBEAT_SECONDS: u64 = 1;

/// Time that an ending executor has to tell the scheduler, and to end its tasks.
const GOODBYE: Duration = Duration::from_secs(2);

/// Everything that the executors of a worker have in common.
#[derive(Debug, Clone)]
pub(crate) struct ExecutorSetup {
    pub(crate) scheduler: String,
    pub(crate) slots: usize,
    pub(crate) advertise: String,
    pub(crate) flight_port: u16,
    pub(crate) work_dir: Arc<Path>,
    pub(crate) runtime_env: Arc<RuntimeEnv>,
    pub(crate) computer: LeaseComputer,
    pub(crate) dialer: Dialer,
    pub(crate) front: TaskFront,
    /// The cluster's service, which checks the worker's token.
    pub(crate) cluster: ClusterClient,
}

impl ExecutorSetup {
    /// Runs an executor named `id` until it ends or `stop` becomes `true`. Returns the reason.
    /// Calls `registered` when the scheduler knows it.
    pub(crate) async fn run(
        &self,
        id: String,
        stop: &mut watch::Receiver<bool>,
        registered: impl FnOnce() + Send,
    ) -> String {
        let channel = match self.connect().await {
            Ok(channel) => channel,
            Err(cause) => return cause,
        };
        let config = match free_port() {
            Ok(port) => Arc::new(self.config(id, port)),
            Err(error) => return format!("no port is free: {error}"),
        };
        // The scheduler may call as soon as it knows the executor.
        self.front.set(Some(config.grpc_port));
        let mut scheduler = SchedulerGrpcClient::new(channel);
        let shutdown = ShutdownNotifier::new();
        // Other parts of the executor end it through these.
        let mut ended = shutdown.subscribe_for_shutdown();
        let (stop_sender, mut stopped) = mpsc::channel(1);
        let codec: BallistaCodec<LogicalPlanNode, PhysicalPlanNode> = BallistaCodec::new(
            Arc::new(BallistaLogicalExtensionCodec::default()),
            Arc::new(LeaseCodec::of_worker()),
        );
        let server = executor_server::startup(
            scheduler.clone(),
            Arc::clone(&config),
            Arc::new(self.executor(&config)),
            codec,
            stop_sender,
            &shutdown,
            config.health.clone(),
        );
        let mut server = match server.await {
            Ok(server) => server,
            Err(error) => return describe(&error),
        };
        registered();
        let reason = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => "it was stopped".to_owned(),
            () = ended.recv() => "the scheduler was away for too long".to_owned(),
            _ = stopped.recv() => "the scheduler removed it".to_owned(),
            end = &mut server => format!("its server ended: {end:?}"),
        };
        if *stop.borrow() {
            let params = ExecutorStoppedParams {
                executor_id: config.executor_id.clone(),
                reason: reason.clone(),
            };
            // The scheduler also notices by itself, later.
            let _ = tokio::time::timeout(GOODBYE, scheduler.executor_stopped(params)).await;
        }
        self.front.set(None);
        server.abort();
        end(shutdown).await;
        reason
    }

    /// Connects to the scheduler, which must accept the worker's certificate and its token.
    async fn connect(&self) -> Result<Channel, String> {
        let scheduler = &self.scheduler;
        let connecting = self.dialer.endpoint(scheduler)?;
        let failed = |cause| format!("cannot connect to the scheduler {scheduler}: {cause}");
        let channel = connecting.connect().await;
        let channel = channel.map_err(|error| failed(explain(&error)))?;
        // A server tells a client that it does not accept its certificate after the handshake.
        let cluster = ClusterClient::new(channel.clone(), self.cluster.credential.clone());
        let accepted = cluster.list_workers(ClientReport::default()).await;
        accepted.map_err(|status| failed(explain(&status)))?;
        Ok(channel)
    }

    fn config(&self, executor_id: String, grpc_port: u16) -> ExecutorProcessConfig {
        ExecutorProcessConfig {
            executor_id,
            // Its connections are not encrypted. Others reach it through the front.
            bind_host: Ipv4Addr::LOCALHOST.to_string(),
            external_host: Some(self.advertise.clone()),
            port: self.flight_port,
            grpc_port,
            vcores: self.slots,
            grpc_max_decoding_message_size: MAX_TASKS,
            executor_heartbeat_interval_seconds: HEARTBEAT_SECONDS,
            override_create_grpc_client_endpoint: self.dialer.endpoint_override(),
            ..ExecutorProcessConfig::default()
        }
    }

    fn executor(&self, config: &Arc<ExecutorProcessConfig>) -> Executor {
        let runtime_env = Arc::clone(&self.runtime_env);
        let dialer = self.dialer.clone();
        // Executors read the data of other jobs from each other.
        let config_producer: ConfigProducer = Arc::new(move || {
            let config = SessionConfig::new_with_ballista();
            match dialer.endpoint_override() {
                Some(customize) => config
                    .with_ballista_use_tls(true)
                    .with_ballista_override_create_grpc_client_endpoint(customize),
                None => config,
            }
        });
        Executor::new(
            structure_executor_metadata(config, u32::try_from(self.slots).unwrap_or(u32::MAX)),
            &self.work_dir.to_string_lossy(),
            Arc::new(move |_| Ok(Arc::clone(&runtime_env))),
            config_producer,
            Arc::default(),
            Arc::new(LoggingMetricsCollector::default()),
            self.slots,
            Arc::new(WorkerExecution::new(self.computer.clone())),
        )
    }
}

/// Creates the environment of jobs other than leases, which spill when they need more memory than
/// `memory_limit`.
pub(crate) fn runtime_env(
    memory_limit: Option<usize>,
) -> datafusion::common::Result<Arc<RuntimeEnv>> {
    let mut builder = RuntimeEnvBuilder::new();
    if let Some(limit) = memory_limit {
        builder = builder.with_memory_pool(Arc::new(FairSpillPool::new(limit)));
    }
    builder.build_arc()
}

/// Returns a port that is free now. Ballista registers the number that it is told, so it cannot
/// choose a port itself. Where another process takes the port first, the worker tries again.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// Tells the tasks of an executor to end, and waits for them.
async fn end(shutdown: ShutdownNotifier) {
    let ShutdownNotifier {
        notify_shutdown,
        mut shutdown_complete_rx,
        shutdown_complete_tx,
    } = shutdown;
    // All tasks may have ended already.
    let _ = notify_shutdown.send(());
    drop(shutdown_complete_tx);
    if tokio::time::timeout(GOODBYE, shutdown_complete_rx.recv())
        .await
        .is_err()
    {
        tracing::warn!("parts of the executor did not end in time");
    }
}
