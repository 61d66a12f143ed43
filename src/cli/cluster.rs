//! `forebay scheduler`, `forebay worker` and `forebay cluster`: the processes of a cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;

use forebay::ClusterAccess;
use forebay_cluster::ballista::{Scheduler, SchedulerOptions, Security, Worker, WorkerOptions};
use forebay_cluster::job_handler::JobHandler;
use forebay_cluster::jobs::JobSettings;
use tokio::process::{Child, Command};

use super::cluster_args::{ClusterArgs, LogFormat, SchedulerArgs, WorkerArgs};
use super::failure::CommandFailure;
use super::log_records::announce;
use super::python;

/// Runs a scheduler until a signal arrives.
pub(crate) async fn scheduler(args: SchedulerArgs) -> Result<(), CommandFailure> {
    let mut options = SchedulerOptions::new(args.listen);
    options.advertise = args.advertise;
    options.security = security(&args.security.access())?;
    let scheduler = Scheduler::start(options)
        .await
        .map_err(|error| usage(&error))?;
    let message = format!("scheduler listens on {}", scheduler.address());
    announce(args.log, &message);
    std::future::pending().await
}

/// Runs a worker until a signal arrives.
pub(crate) async fn worker(args: WorkerArgs) -> Result<(), CommandFailure> {
    let slots = args.slots.map_or_else(cores, std::num::NonZeroUsize::get);
    let mut options = WorkerOptions::new(args.scheduler.clone(), slots);
    options.listen = args.listen;
    options.advertise = args.advertise;
    options.http_listen = args.http;
    options.security = security(&args.security.access())?;
    let functions = python::rule(
        &args.python,
        args.listen,
        &args.scheduler,
        &options.security,
    )?;
    let handler = JobHandler::new(JobSettings {
        functions,
        threads: args.threads.map(std::num::NonZeroUsize::get),
        memory_limit: args.memory_limit,
        roots: args.data,
        ..JobSettings::default()
    });
    let worker = Worker::start(options, Arc::new(handler)).await;
    let worker = worker.map_err(|error| usage(&error))?;
    if let Some(address) = worker.http_address() {
        announce(args.log, &format!("worker serves /metrics on {address}"));
    }
    let message = format!(
        "worker of {} with {slots} slots listens on {}",
        args.scheduler,
        worker.address()
    );
    announce(args.log, &message);
    std::future::pending().await
}

/// Runs a scheduler, and workers in processes of their own, on this machine until a signal arrives
/// or a worker ends.
pub(crate) async fn cluster(args: ClusterArgs) -> Result<(), CommandFailure> {
    let access = args.tls.access();
    let mut options =
        SchedulerOptions::new(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port));
    options.security = security(&access)?;
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
        // They inherit the variables.
        command.envs(access.files());
        if args.python.allow_python {
            command.arg("--allow-python");
        }
        command.envs(
            args.python
                .python
                .as_ref()
                .map(|file| (python::PYTHON, file)),
        );
        if args.log.log_format == LogFormat::Json {
            command.args(["--log-format", "json"]);
        }
        let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        workers.push(child);
    }
    let message = format!(
        "{} workers; run pipelines with --cluster {address}",
        workers.len()
    );
    announce(args.log, &message);
    let ends = workers.iter_mut().map(|worker| Box::pin(worker.wait()));
    let (ended, ..) = futures::future::select_all(ends).await;
    let message = format!("a worker ended ({}), so the cluster ends", ended?);
    Err(CommandFailure::Run(message))
}

/// Returns the access rules of a process with `access`.
fn security(access: &ClusterAccess) -> Result<Security, CommandFailure> {
    access.security().map_err(|error| usage(&error))
}

fn usage(error: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::Usage(error.to_string())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
