//! The worker's process.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::ids::new_instance_id;
use ballista_executor::flight_service::BallistaFlightService;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::blob_source::SchedulerBlobs;
use super::board::lock;
use super::connection::{MAX_REQUESTS, describe, endpoint};
use super::execution::LeaseComputer;
use super::executor::{ExecutorSetup, runtime_env};
use super::flight::WorkerFlight;
use super::result_store::ResultStore;
use super::rpc::ClusterClient;
use super::security::Credential;
use super::task::{self, OwnRuntime};
use super::{StartError, WorkerOptions};
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
        let listen_error = |source| StartError::Listen {
            address: options.listen,
            source,
        };
        let listener = TcpListener::bind(options.listen).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let start_error = |error: std::io::Error| StartError::Start(error.to_string());
        let runtime = OwnRuntime::new("forebay-worker", options.threads).map_err(start_error)?;
        let id = Arc::new(Mutex::new(new_instance_id()));
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
        let serve = async move { service.start(listener, address, stopped) };
        let supervisor = Some(runtime.run(serve).await.map_err(start_error)??);
        Ok(Self {
            id,
            address,
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
            log::warn!("the worker did not end in order");
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
            log::warn!("cannot remove {}: {error}", self.work_dir.display());
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
        listener: TcpListener,
        address: SocketAddr,
        stop: watch::Receiver<bool>,
    ) -> Result<JoinHandle<()>, StartError> {
        let start_error = |error: &dyn std::error::Error| StartError::Start(describe(error));
        let options = &self.options;
        let runtime = Handle::current();
        let results = Arc::new(ResultStore::new(options.result_capacity));
        let channel = endpoint(&options.scheduler)
            .map_err(StartError::Option)?
            .connect_lazy();
        let scheduler = ClusterClient::new(channel, self.credential.clone());
        let setup = ExecutorSetup {
            scheduler: options.scheduler.clone(),
            slots: options.slots,
            bind: options.listen.ip(),
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
                    scheduler,
                    max_blob: options.max_blob,
                }),
                results: Arc::clone(&results),
            },
        };
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|e| start_error(&e))?;
        let flight = WorkerFlight {
            ballista: BallistaFlightService::new(self.work_dir.to_string_lossy().into_owned()),
            results: Arc::clone(&results),
            credential: self.credential,
            id: Arc::clone(&self.id),
        };
        drop(task::start(
            &runtime,
            "serving results",
            serve(listener, flight),
        ));
        let evict = evict(results, options.result_timeout);
        drop(task::start(&runtime, "evicting results", evict));
        Ok(task::start(
            &runtime,
            "keeping an executor",
            supervise(setup, self.id, stop),
        ))
    }
}

/// Fails if an option is out of range.
fn check(options: &WorkerOptions) -> Result<(), StartError> {
    let WorkerOptions {
        scheduler,
        slots,
        listen,
        advertise,
        security,
        ..
    } = options;
    security.check_address(*listen)?;
    endpoint(scheduler).map_err(StartError::Option)?;
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

/// Serves results to clients, and the data of other jobs to executors.
async fn serve(listener: tokio::net::TcpListener, flight: WorkerFlight) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    // TLS belongs here: `Server::tls_config`.
    let server = Server::builder()
        .max_concurrent_streams(MAX_REQUESTS)
        .add_service(FlightServiceServer::new(flight))
        .serve_with_incoming(incoming);
    if let Err(error) = server.await {
        log::error!(
            "the worker does not serve results any more: {}",
            describe(&error)
        );
    }
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
async fn supervise(setup: ExecutorSetup, id: Arc<Mutex<String>>, mut stop: watch::Receiver<bool>) {
    let mut pause = FIRST_PAUSE;
    while !*stop.borrow() {
        let name = lock(&id).clone();
        let mut is_registered = false;
        let end = setup
            .run(name.clone(), &mut stop, || is_registered = true)
            .await;
        if is_registered {
            log::info!("worker {name} has ended: {end}");
            pause = FIRST_PAUSE;
            *lock(&id) = new_instance_id();
        } else {
            log::debug!("worker {name} has not started: {end}");
        }
        // Without a wait, the next try would come at once.
        let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
