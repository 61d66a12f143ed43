//! The worker's process.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ballista_executor::flight_service::BallistaFlightService;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use uuid::Uuid;

use super::WorkerOptions;
use super::blob_source::SchedulerBlobs;
use super::execution::LeaseComputer;
use super::executor::{ExecutorSetup, runtime_env};
use super::flight::WorkerFlight;
use super::front::TaskFront;
use super::gateway::WORKER_PREFIX;
use super::metrics::WorkerMetrics;
use super::own_runtime::OwnRuntime;
use super::result_store::ResultStore;
use super::worker_server::{listen, routes, serve, serve_http};
use crate::ballista::StartError;
use crate::ballista::error::describe;
use crate::ballista::lock::lock;
use crate::ballista::rpc::ClusterClient;
use crate::ballista::security::Credential;
use crate::ballista::task;
use crate::engine::WorkerId;
use crate::handler::LeaseHandler;

/// Time between two tries to reach the scheduler, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A worker: a Ballista executor that computes leases. When the executor ends because the
/// scheduler was away, another one takes its place. It ends when it is dropped.
#[derive(Debug)]
pub struct Worker {
    id: Arc<Mutex<String>>,
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    work_dir: Arc<Path>,
    stop: watch::Sender<bool>,
    supervisor: Option<JoinHandle<()>>,
    runtime: OwnRuntime,
}

impl Worker {
    /// Starts a worker. It waits for a scheduler that does not run yet.
    ///
    /// # Errors
    /// Fails if the address cannot be listened on, or must not be.
    pub async fn start(
        options: WorkerOptions,
        handler: Arc<dyn LeaseHandler>,
    ) -> Result<Self, StartError> {
        let credential = options.security.credential()?;
        check(&options)?;
        let server = options.security.server()?;
        let (listener, address) = listen(options.listen)?;
        let http = options.http_listen.map(listen).transpose()?;
        let http_address = http.as_ref().map(|(_, address)| *address);
        let start_error = |error: std::io::Error| StartError::Start(error.to_string());
        let runtime = OwnRuntime::new("forebay-worker", options.threads).map_err(start_error)?;
        let id = Arc::new(Mutex::new(new_id()));
        let folder = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
        // It is removed at the end, so it must belong to this worker alone.
        let work_dir: Arc<Path> = folder.join(format!("forebay-worker-{}", lock(&id))).into();
        let (stop, stopped) = watch::channel(false);
        let service = WorkerService {
            options,
            handler,
            credential,
            id: Arc::clone(&id),
            work_dir: Arc::clone(&work_dir),
        };
        let serve = async move { service.start((server, listener), address, http, stopped) };
        let supervisor = Some(runtime.run(serve).await.map_err(start_error)??);
        Ok(Self {
            id,
            address,
            http_address,
            work_dir,
            stop,
            supervisor,
            runtime,
        })
    }

    /// Returns the address at which results are fetched.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the probes and of the metrics; `None` if there are none.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the worker's name now. It changes when the scheduler was away for long.
    pub fn id(&self) -> WorkerId {
        WorkerId(lock(&self.id).clone())
    }

    /// Ends the worker. Its leases run elsewhere.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(supervisor) = self.supervisor.take()
            && supervisor.await.is_err()
        {
            tracing::warn!("the worker did not end in order");
        }
        self.runtime.stop().await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It exists if a job other than a lease ran here.
        if let Err(error) = std::fs::remove_dir_all(&self.work_dir)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}", self.work_dir.display());
        }
    }
}

/// The services of a worker, which run in the worker's runtime.
struct WorkerService {
    options: WorkerOptions,
    handler: Arc<dyn LeaseHandler>,
    credential: Credential,
    id: Arc<Mutex<String>>,
    work_dir: Arc<Path>,
}

impl WorkerService {
    /// Starts to serve results, and to keep an executor running. Returns the task of the latter.
    fn start(
        self,
        (server, listener): (Server, TcpListener),
        address: SocketAddr,
        http: Option<(TcpListener, SocketAddr)>,
        stop: watch::Receiver<bool>,
    ) -> Result<JoinHandle<()>, StartError> {
        let start_error = |error: &dyn std::error::Error| StartError::Start(describe(error));
        let options = &self.options;
        let runtime = Handle::current();
        let results = Arc::new(ResultStore::new(options.result_capacity));
        let dialer = options.security.dialer();
        let metrics = WorkerMetrics::new(
            options.slots,
            Arc::clone(&self.handler),
            Arc::clone(&results),
        )
        .map_err(|e| start_error(&e))?;
        let channel = dialer
            .endpoint(&options.scheduler)
            .map_err(StartError::Option)?
            .connect_lazy();
        let scheduler = ClusterClient::new(channel, self.credential.clone());
        let front = TaskFront::default();
        let setup = ExecutorSetup {
            scheduler: options.scheduler.clone(),
            slots: options.slots,
            advertise: options
                .advertise
                .clone()
                .unwrap_or_else(|| address.ip().to_string()),
            flight_port: address.port(),
            work_dir: Arc::clone(&self.work_dir),
            runtime_env: runtime_env(options.memory_limit).map_err(|e| start_error(&e))?,
            computer: LeaseComputer {
                handler: Arc::clone(&self.handler),
                blobs: Arc::new(SchedulerBlobs {
                    scheduler: scheduler.clone(),
                    max_blob: options.max_blob,
                }),
                results: Arc::clone(&results),
                metrics: metrics.clone(),
            },
            dialer,
            front: front.clone(),
            cluster: scheduler,
        };
        let is_ready = Arc::new(AtomicBool::new(false));
        if let Some((listener, address)) = http {
            // The address is loopback, or TLS or `insecure` is set.
            let server = if address.ip().is_loopback() {
                Server::builder()
            } else {
                options.security.server()?
            };
            let listener = tokio::net::TcpListener::from_std(listener);
            let listener = listener.map_err(|e| start_error(&e))?;
            let routes = routes(&metrics, &self.credential, &is_ready);
            let serve = serve_http(server, listener, routes);
            drop(task::start(&runtime, "serving metrics", serve));
        }
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|e| start_error(&e))?;
        let flight = WorkerFlight {
            ballista: BallistaFlightService::new(self.work_dir.to_string_lossy().into_owned()),
            results: Arc::clone(&results),
            credential: self.credential,
            metrics,
            id: Arc::clone(&self.id),
        };
        drop(task::start(
            &runtime,
            "serving results",
            serve(server, listener, flight, front),
        ));
        let evict = evict(results, options.result_timeout);
        drop(task::start(&runtime, "evicting results", evict));
        Ok(task::start(
            &runtime,
            "keeping an executor",
            supervise(setup, self.id, is_ready, stop),
        ))
    }
}

/// Returns a name for an executor.
fn new_id() -> String {
    format!("{WORKER_PREFIX}{}", Uuid::new_v4())
}

/// Fails if an option is out of range.
fn check(options: &WorkerOptions) -> Result<(), StartError> {
    let WorkerOptions {
        scheduler,
        slots,
        listen,
        advertise,
        security,
        http_listen,
        ..
    } = options;
    security.check_address(*listen)?;
    if let Some(address) = http_listen {
        security.check_address(*address)?;
    }
    let dialer = security.dialer();
    dialer.endpoint(scheduler).map_err(StartError::Option)?;
    if *slots == 0 {
        return Err(StartError::Option(
            "a worker needs at least one slot".to_owned(),
        ));
    }
    if advertise.is_none() && listen.ip().is_unspecified() {
        return Err(StartError::Option(format!(
            "{} is every address of this machine, so clients need to be told one; set the host \
             to advertise",
            listen.ip()
        )));
    }
    Ok(())
}

/// Drops results that nobody fetches.
async fn evict(results: Arc<ResultStore>, timeout: Duration) {
    let mut ticks = tokio::time::interval((timeout / 10).max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        results.evict(timeout);
    }
}

/// Keeps an executor running until `stop` becomes `true`. Each one has an id of its own, because
/// Ballista refuses the id of an executor that it has not given up yet.
async fn supervise(
    setup: ExecutorSetup,
    id: Arc<Mutex<String>>,
    is_ready: Arc<AtomicBool>,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = FIRST_PAUSE;
    let mut last_cause = String::new();
    while !*stop.borrow() {
        let name = lock(&id).clone();
        let mut is_registered = false;
        let end = setup
            .run(name.clone(), &mut stop, || {
                is_registered = true;
                is_ready.store(true, Ordering::Relaxed);
                tracing::info!(worker = name, "the worker has registered");
            })
            .await;
        is_ready.store(false, Ordering::Relaxed);
        if is_registered {
            tracing::info!(worker = name, cause = end, "the executor has ended");
            pause = FIRST_PAUSE;
            last_cause.clear();
            *lock(&id) = new_id();
        } else {
            // It is tried again and again.
            if end != last_cause {
                tracing::warn!(worker = name, "the worker waits: {end}");
            }
            last_cause = end;
        }
        // Without a wait, the next try would come at once.
        let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
