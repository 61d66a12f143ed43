//! A cluster on Ballista whose processes are tasks of the test, and sessions on it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::forebay_cluster::WindowSettings;
use forebay::forebay_cluster::ballista::{
    BallistaEngine, EngineOptions, Scheduler, SchedulerOptions, Worker, WorkerOptions,
};
use forebay::forebay_cluster::engine::LeaseEngine;
use forebay::forebay_cluster::job_handler::JobHandler;
use forebay::forebay_cluster::jobs::JobSettings;
use forebay::{Batch, Cluster, Run, RunConfig, Session};

use super::common::{digest, parquet, table};

/// Longest time that anything here may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// Number of rows of the table `t`.
pub(crate) const ROWS: i64 = 6000;

/// A scheduler and workers.
pub(crate) struct ServiceCluster {
    scheduler: Option<Scheduler>,
    pub(crate) address: SocketAddr,
    pub(crate) workers: Vec<Worker>,
}

fn engine_at(address: SocketAddr) -> BallistaEngine {
    BallistaEngine::new(&EngineOptions::new(address.to_string())).unwrap()
}

fn options(listen: SocketAddr) -> SchedulerOptions {
    let mut options = SchedulerOptions::new(listen);
    // A machine may be too busy to send a heartbeat every second.
    options.worker_timeout = DEADLINE * 2;
    options
}

impl ServiceCluster {
    /// Starts a cluster of `workers` workers with two slots each.
    pub(crate) async fn start(workers: usize) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let scheduler = Scheduler::start(options(listen)).await.unwrap();
        let mut cluster = Self {
            address: scheduler.address(),
            scheduler: Some(scheduler),
            workers: Vec::new(),
        };
        for _ in 0..workers {
            cluster
                .add_worker(WorkerOptions::new(cluster.address.to_string(), 2))
                .await;
        }
        cluster.wait_for(workers).await;
        cluster
    }

    /// Starts another worker. It registers as soon as it finds the scheduler.
    pub(crate) async fn add_worker(&mut self, options: WorkerOptions) {
        let handler = JobHandler::new(JobSettings::default());
        let worker = Worker::start(options, Arc::new(handler)).await.unwrap();
        self.workers.push(worker);
    }

    /// Starts another worker with two slots.
    pub(crate) async fn join(&mut self) {
        self.add_worker(WorkerOptions::new(self.address.to_string(), 2))
            .await;
    }

    pub(crate) async fn stop_scheduler(&mut self) {
        self.scheduler.take().unwrap().stop().await;
    }

    /// Starts a scheduler that knows nothing, at the address of the last one.
    pub(crate) async fn start_scheduler(&mut self) {
        self.scheduler = Some(Scheduler::start(options(self.address)).await.unwrap());
    }

    /// Waits until `count` workers have registered.
    pub(crate) async fn wait_for(&self, count: usize) {
        let engine = engine_at(self.address);
        let start = Instant::now();
        while engine.workers().await.map_or(0, |workers| workers.len()) != count {
            assert!(start.elapsed() < DEADLINE, "not {count} workers registered");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns a session of a client whose results take about `max_bytes`.
    pub(crate) fn session(&self, max_bytes: u64) -> Session {
        self.session_at(self.address, max_bytes)
    }

    /// Returns a session of a client that reaches the scheduler at `address`.
    pub(crate) fn session_at(&self, address: SocketAddr, max_bytes: u64) -> Session {
        let settings = WindowSettings {
            max_bytes,
            ..WindowSettings::default()
        };
        Session::on_cluster(Cluster::new(Arc::new(engine_at(address)), settings))
    }
}

/// Writes the table `t` to `folder`, whose row groups have 50 rows.
pub(crate) fn write_table(folder: &Path) {
    parquet(&folder.join("t.parquet"), &table(ROWS), 50);
}

/// Defines the pipeline `p`: `select` over the table in `folder`, with the clauses `rest`.
pub(crate) async fn define(session: &Session, folder: &Path, select: &str, rest: &str) {
    let path = folder.join("t.parquet");
    let sql = format!(
        "CREATE PIPELINE p AS SELECT {select} FROM parquet('{}') AS t {rest}",
        path.display()
    );
    session.execute(&sql).await.unwrap();
}

/// A pipeline in a session of this process, and in one on a cluster.
pub(crate) struct Both {
    pub(crate) here: Session,
    pub(crate) there: Session,
}

impl Both {
    /// Defines the pipeline `p` in both sessions.
    pub(crate) async fn of(there: Session, folder: &Path, select: &str, rest: &str) -> Self {
        let here = Session::new();
        define(&here, folder, select, rest).await;
        define(&there, folder, select, rest).await;
        Self { here, there }
    }

    /// Returns the digest of the stream in this process.
    pub(crate) async fn expected(&self, config: RunConfig) -> String {
        digest(&rest(&mut self.here.run("p", config).await.unwrap()).await)
    }
}

/// Takes the next `count` batches of a run.
pub(crate) async fn take(run: &mut Run, count: usize) -> Vec<Batch> {
    let mut batches = Vec::new();
    for _ in 0..count {
        let next = tokio::time::timeout(DEADLINE, run.next()).await;
        batches.push(next.expect("a batch in time").unwrap().unwrap());
    }
    batches
}

/// Takes the remaining batches of a run.
pub(crate) async fn rest(run: &mut Run) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = tokio::time::timeout(DEADLINE, run.next())
        .await
        .expect("a batch in time")
    {
        batches.push(batch.unwrap());
    }
    batches
}

/// Returns the values of the column `id` in `batches`.
pub(crate) fn ids(batches: &[Batch]) -> Vec<i64> {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    let column = |batch: &Batch| {
        let ids = batch.batch.column_by_name("id").unwrap();
        ids.as_primitive::<Int64Type>().values().to_vec()
    };
    batches.iter().flat_map(column).collect()
}
