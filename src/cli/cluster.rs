//! `forebay scheduler`, `forebay worker` and `forebay cluster`: the processes of a cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;

use forebay_cluster::ballista::{
    BallistaEngine, EngineOptions, Scheduler, SchedulerOptions, Security, Worker, WorkerOptions,
};
use forebay_cluster::job_handler::JobHandler;
use forebay_cluster::jobs::JobSettings;
use forebay_cluster::{Cluster, WindowSettings};
use tokio::process::{Child, Command};

use super::cluster_args::{ClusterArgs, SchedulerArgs, SecurityArgs, WorkerArgs};
use super::console;
use super::failure::CommandFailure;

/// Environment variable with the secret that the processes of a cluster share.
const TOKEN: &str = "FOREBAY_CLUSTER_TOKEN";

/// Returns the cluster whose scheduler listens on `address`.
pub(crate) fn connect(address: &str) -> Result<Cluster, CommandFailure> {
    let mut options = EngineOptions::new(address);
    options.security.token = token();
    let engine = BallistaEngine::new(&options).map_err(|error| usage(&error))?;
    Ok(Cluster::new(Arc::new(engine), WindowSettings::default()))
}

/// Runs a scheduler until a signal arrives.
pub(crate) async fn scheduler(args: SchedulerArgs) -> Result<(), CommandFailure> {
    let mut options = SchedulerOptions::new(args.listen);
    options.advertise = args.advertise;
    options.security = security(&args.security);
    let scheduler = Scheduler::start(options)
        .await
        .map_err(|error| usage(&error))?;
    console::message(&format!("scheduler listens on {}", scheduler.address()));
    std::future::pending().await
}

/// Runs a worker until a signal arrives.
pub(crate) async fn worker(args: WorkerArgs) -> Result<(), CommandFailure> {
    let slots = args.slots.map_or_else(cores, std::num::NonZeroUsize::get);
    let mut options = WorkerOptions::new(args.scheduler.clone(), slots);
    options.listen = args.listen;
    options.advertise = args.advertise;
    options.security = security(&args.security);
    let handler = JobHandler::new(JobSettings {
        threads: args.threads.map(std::num::NonZeroUsize::get),
        memory_limit: args.memory_limit,
        roots: args.data,
    });
    let worker = Worker::start(options, Arc::new(handler)).await;
    let worker = worker.map_err(|error| usage(&error))?;
    console::message(&format!(
        "worker of {} with {slots} slots listens on {}",
        args.scheduler,
        worker.address()
    ));
    std::future::pending().await
}

/// Runs a scheduler, and workers in processes of their own, on this machine until a signal arrives
/// or a worker ends.
pub(crate) async fn cluster(args: ClusterArgs) -> Result<(), CommandFailure> {
    let mut options =
        SchedulerOptions::new(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port));
    options.security.token = token();
    let scheduler = Scheduler::start(options)
        .await
        .map_err(|error| usage(&error))?;
    let address = scheduler.address().to_string();
    let mut workers: Vec<Child> = Vec::new();
    for _ in 0..args.workers.get() {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--scheduler", &address]);
        if let Some(threads) = args.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if let Some(limit) = args.memory_limit {
            command.args(["--memory-limit", &limit.to_string()]);
        }
        let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        workers.push(child);
    }
    console::message(&format!(
        "{} workers; run pipelines with --cluster {address}",
        workers.len()
    ));
    let ends = workers.iter_mut().map(|worker| Box::pin(worker.wait()));
    let (ended, ..) = futures::future::select_all(ends).await;
    let message = format!("a worker ended ({}), so the cluster ends", ended?);
    Err(CommandFailure::Run(message))
}

fn security(args: &SecurityArgs) -> Security {
    Security {
        token: token(),
        insecure: args.insecure,
    }
}

fn token() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

fn usage(error: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::Usage(error.to_string())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
