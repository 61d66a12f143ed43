//! The scheduler's process.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::UpdateTaskStatusParams;
use ballista_core::serde::protobuf::scheduler_grpc_server::{SchedulerGrpc, SchedulerGrpcServer};
use ballista_core::utils::default_session_builder;
use ballista_scheduler::api::get_routes;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::cluster::memory::InMemoryJobState;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::create_scheduler;
use datafusion::prelude::SessionConfig;
use tokio::runtime::Handle;
use tonic::Request;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::SchedulerOptions;
use super::board::Board;
use super::client_board::ClientBoard;
use super::codec::LeaseCodec;
use super::connection::{MAX_REQUESTS, MAX_TASKS};
use super::context::{BallistaScheduler, SchedulerContext};
use super::gateway::BallistaGateway;
use super::grpc::ClusterServer;
use super::http::{guarded, metrics, probes, scheduler_metrics};
use super::jobs::ClusterJobs;
use super::liveness::watch_workers;
use super::members::ClusterMembers;
use super::own_runtime::OwnRuntime;
use super::service::ClusterService;
use crate::ballista::StartError;
use crate::ballista::connection::authority;
use crate::ballista::error::describe;
use crate::ballista::security::Credential;
use crate::ballista::task;

/// Time for which the state of a finished job is kept. The default of Ballista is an hour, which
/// keeps 20 KB for each lease.
const JOB_STATE_SECONDS: u64 = 2;

/// Time after which the running jobs end where no worker is left.
const NO_WORKERS_SECONDS: u64 = 180;

/// Interval and time limit of the pings by which the scheduler notices a client whose machine is
/// gone.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A scheduler: Ballista's, with the cluster's service on the same port. It ends when it is
/// dropped.
#[derive(Debug)]
pub struct Scheduler {
    address: SocketAddr,
    runtime: OwnRuntime,
}

impl Scheduler {
    /// Starts a scheduler. It accepts connections when this returns.
    ///
    /// # Errors
    /// Fails if the address cannot be listened on, or must not be.
    pub async fn start(options: SchedulerOptions) -> Result<Self, StartError> {
        let credential = options.security.credential()?;
        options.security.check_address(options.listen)?;
        let server = options.security.server()?;
        let listen_error = |source| StartError::Listen {
            address: options.listen,
            source,
        };
        let listener = TcpListener::bind(options.listen).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        if options.advertise.is_none() && address.ip().is_unspecified() {
            return Err(StartError::Option(format!(
                "{address} is every address of this machine, so workers need to be told one; \
                 set the host to advertise"
            )));
        }
        let start_error = |error: std::io::Error| StartError::Start(error.to_string());
        let runtime = OwnRuntime::new("forebay-scheduler", options.threads).map_err(start_error)?;
        let serve = async move {
            let context = create_context(&options, address, credential).await?;
            let blobs = (options.blob_capacity, options.max_blob);
            let service = Arc::new(ClusterService::new(Arc::clone(&context), blobs));
            serve(&context, service, server, listener)
        };
        runtime.run(serve).await.map_err(start_error)??;
        Ok(Self { address, runtime })
    }

    /// Returns the address that the scheduler listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the scheduler. Its port is free when this returns.
    pub async fn stop(mut self) {
        self.runtime.stop().await;
    }
}

/// Returns the configuration of Ballista's scheduler on `address`.
fn ballista_config(options: &SchedulerOptions, address: SocketAddr) -> SchedulerConfig {
    let host = options
        .advertise
        .clone()
        .unwrap_or_else(|| address.ip().to_string());
    SchedulerConfig {
        // Ballista puts the host and the port together as they are.
        external_host: authority(&host, 0).trim_end_matches(":0").to_owned(),
        bind_host: address.ip().to_string(),
        bind_port: address.port(),
        scheduling_policy: TaskSchedulingPolicy::PushStaged,
        // Of jobs other than leases.
        task_distribution: TaskDistributionPolicy::RoundRobin,
        // Ballista does not; `ClusterJobs` does.
        finished_job_data_clean_up_interval_seconds: 0,
        finished_job_state_clean_up_interval_seconds: JOB_STATE_SECONDS,
        executor_timeout_seconds: options.worker_timeout.as_secs().max(1),
        expire_dead_executor_interval_seconds: 1,
        executor_termination_grace_period: 0,
        no_executors_grace_period_seconds: NO_WORKERS_SECONDS,
        override_physical_codec: Some(Arc::new(LeaseCodec::of_scheduler())),
        override_session_builder: Some(Arc::new(default_session_builder)),
        grpc_client_max_message_size: MAX_TASKS,
        override_create_grpc_client_endpoint: options.security.dialer().endpoint_override(),
        use_tls: options.security.tls.is_some(),
        ..SchedulerConfig::default()
    }
}

/// Creates Ballista's scheduler.
async fn create_context(
    options: &SchedulerOptions,
    address: SocketAddr,
    credential: Credential,
) -> Result<Arc<SchedulerContext>, StartError> {
    let start_error = |error: &dyn std::error::Error| StartError::Start(describe(error));
    let config = ballista_config(options, address);
    let board = Arc::new(Board::default());
    let needs_token = options.security.token.is_some();
    let jobs = InMemoryJobState::new(
        config.scheduler_endpoint(),
        Arc::new(default_session_builder),
        Arc::new(SessionConfig::new_with_ballista),
    );
    let workers = Arc::new(OnceLock::new());
    let jobs = ClusterJobs::new(jobs, Arc::clone(&workers));
    let cluster = BallistaCluster::new(
        Arc::new(ClusterMembers::new(Arc::clone(&board), needs_token)),
        Arc::new(jobs),
    );
    let ballista: BallistaScheduler = create_scheduler(cluster, Arc::new(config))
        .await
        .map_err(|e| start_error(&e))?;
    workers.get_or_init(|| ballista.state.executor_manager.clone());
    let sessions = &ballista.state.session_manager;
    let session = sessions
        .create_or_update_session("forebay-leases", &SessionConfig::new_with_ballista())
        .await
        .map_err(|e| start_error(&e))?;
    Ok(Arc::new(SchedulerContext {
        ballista,
        board,
        clients: ClientBoard::default(),
        started: Instant::now(),
        credential,
        dialer: options.security.dialer(),
        session,
        runtime: Handle::current(),
    }))
}

/// Starts to serve connections of `listener`.
fn serve(
    context: &Arc<SchedulerContext>,
    service: Arc<ClusterService>,
    server: Server,
    listener: TcpListener,
) -> Result<(), StartError> {
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| StartError::Start(error.to_string()))?;
    // Without it, each job waits for the network's delayed acknowledgements (44 ms on Linux).
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let watch = watch_workers(Arc::clone(context));
    drop(task::start(&context.runtime, "watching the workers", watch));
    let again = place_again(Arc::clone(context));
    drop(task::start(&context.runtime, "placing leases", again));
    let routes = routes(context, service);
    let serve = async move {
        let server = server
            .accept_http1(true)
            .max_concurrent_streams(MAX_REQUESTS)
            .http2_keepalive_interval(Some(PING_INTERVAL))
            .http2_keepalive_timeout(Some(PING_TIMEOUT))
            .add_routes(routes)
            .serve_with_incoming(incoming);
        if let Err(error) = server.await {
            tracing::error!(
                "the scheduler does not serve any more: {}",
                describe(&error)
            );
        }
    };
    drop(task::start(
        &context.runtime,
        "serving the scheduler",
        serve,
    ));
    Ok(())
}

/// Has Ballista place leases whenever the alarm of the board rings. Ballista does so by itself when a
/// job comes or a task ends, so this reports the end of no tasks.
async fn place_again(context: Arc<SchedulerContext>) {
    loop {
        context.board.alarm.rings().await;
        let nothing = Request::new(UpdateTaskStatusParams::default());
        if let Err(status) = SchedulerGrpc::update_task_status(&context.ballista, nothing).await {
            tracing::warn!("leases that wait are not placed: {}", status.message());
        }
    }
}

/// Returns what the scheduler's port serves: Ballista's gRPC and REST, and the cluster's service.
fn routes(context: &SchedulerContext, service: Arc<ClusterService>) -> Routes {
    let ballista = &context.ballista;
    let gateway = BallistaGateway {
        ballista: ballista.clone(),
        credential: context.credential.clone(),
    };
    let limits = &ballista.state.config;
    let mut grpc = RoutesBuilder::default();
    grpc.add_service(
        SchedulerGrpcServer::new(gateway)
            .max_encoding_message_size(limits.grpc_server_max_encoding_message_size as usize)
            .max_decoding_message_size(limits.grpc_server_max_decoding_message_size as usize),
    );
    grpc.add_service(ClusterServer(Arc::clone(&service)));
    let ready = ballista.clone();
    let health = probes(move || ready.is_ready(), "no workers");
    let rest = get_routes(Arc::new(ballista.clone()));
    let metrics = metrics(move || scheduler_metrics(&service.cluster_status()));
    let rest = guarded(rest.merge(metrics), context.credential.clone());
    Routes::from(rest.merge(grpc.routes().into_axum_router()).merge(health))
}
