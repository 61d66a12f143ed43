//! Metrics of a worker: for Prometheus, and for the status of the cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Counter, IntCounter, IntGauge, Registry};

use super::http::encode;
use super::result_store::{LeaseOutcome, ResultStore};
use super::watch::WorkerState;
use crate::handler::LeaseHandler;
use crate::job_spec::RELEASE;

/// Metrics of a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerMetrics {
    registry: Registry,
    handler: Arc<dyn LeaseHandler>,
    results: Arc<ResultStore>,
    slots: IntGauge,
    busy: IntGauge,
    leases: IntCounter,
    unfit: IntCounter,
    rows: IntCounter,
    seconds: Counter,
    result_bytes: IntGauge,
    result_limit: IntGauge,
    memory: IntGauge,
    open_jobs: IntGauge,
    job_hits: IntCounter,
    job_misses: IntCounter,
}

impl WorkerMetrics {
    /// Creates the metrics of a worker with `slots`.
    pub(crate) fn new(
        slots: usize,
        handler: Arc<dyn LeaseHandler>,
        results: Arc<ResultStore>,
    ) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(format!("forebay_worker_{name}"), help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(format!("forebay_worker_{name}"), help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let seconds = Counter::new(
            "forebay_worker_lease_seconds_total",
            "Time that leases took to compute",
        )?;
        registry.register(Box::new(seconds.clone()))?;
        let metrics = Self {
            slots: gauge("slots", "Leases that can run at the same time")?,
            busy: gauge("busy_slots", "Leases that run")?,
            leases: counter("leases_total", "Leases that were computed")?,
            unfit: counter(
                "unfit_leases_total",
                "Leases that the worker cannot compute",
            )?,
            rows: counter("rows_total", "Rows that were computed")?,
            seconds,
            result_bytes: gauge("result_bytes", "Results that no client has fetched yet")?,
            result_limit: gauge("result_limit_bytes", "Bound of forebay_worker_result_bytes")?,
            memory: gauge("memory_bytes", "Resident memory of the process")?,
            open_jobs: gauge("open_jobs", "Jobs that are open")?,
            job_hits: counter("job_hits_total", "Leases that found their job open")?,
            job_misses: counter("job_misses_total", "Leases that had to open their job")?,
            registry,
            handler,
            results,
        };
        metrics.slots.set(signed(slots as u64));
        Ok(metrics)
    }

    /// Counts a lease as running until the returned value is dropped.
    pub(crate) fn start_lease(&self) -> RunningLease {
        self.busy.inc();
        RunningLease {
            busy: self.busy.clone(),
            seconds: self.seconds.clone(),
            started: Instant::now(),
        }
    }

    /// Counts the outcome of a lease.
    pub(crate) fn end_lease(&self, outcome: &LeaseOutcome) {
        match outcome {
            Ok(output) => {
                self.leases.inc();
                let rows = output.batches.iter().map(|batch| batch.num_rows() as u64);
                self.rows.inc_by(rows.sum());
            }
            Err(_) => self.unfit.inc(),
        }
    }

    /// Returns the metrics in Prometheus' text format.
    pub(crate) fn text(&self) -> String {
        self.look();
        encode(&self.registry.gather())
    }

    /// Returns the state that the scheduler is told.
    pub(crate) fn state(&self) -> WorkerState {
        self.look();
        let value = |gauge: &IntGauge| u64::try_from(gauge.get()).unwrap_or(0);
        WorkerState {
            release: RELEASE.to_owned(),
            slots: value(&self.slots),
            busy: value(&self.busy),
            leases: self.leases.get(),
            rows: self.rows.get(),
            memory_bytes: value(&self.memory),
            buffer_bytes: value(&self.result_bytes),
            buffer_limit: value(&self.result_limit),
            open_jobs: value(&self.open_jobs),
            job_hits: self.job_hits.get(),
            job_misses: self.job_misses.get(),
            events: self.handler.events(),
        }
    }

    /// Sets the metrics that others count.
    fn look(&self) {
        let (used, limit) = self.results.room();
        self.result_bytes.set(signed(used));
        self.result_limit.set(signed(limit));
        self.memory.set(signed(resident_memory().unwrap_or(0)));
        let counts = self.handler.counts();
        self.open_jobs.set(signed(counts.open_jobs));
        let hits = counts.job_hits.saturating_sub(self.job_hits.get());
        self.job_hits.inc_by(hits);
        let misses = counts.job_misses.saturating_sub(self.job_misses.get());
        self.job_misses.inc_by(misses);
    }
}

/// Counts a lease as running until it is dropped.
pub(crate) struct RunningLease {
    busy: IntGauge,
    seconds: Counter,
    started: Instant,
}

impl Drop for RunningLease {
    fn drop(&mut self) {
        self.busy.dec();
        self.seconds.inc_by(self.started.elapsed().as_secs_f64());
    }
}

/// Interval at which the scheduler is told the state of a worker.
pub(crate) const STATE_PERIOD: Duration = Duration::from_secs(1);

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns the resident memory of this process in bytes, where the system says it as Linux does.
fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}
