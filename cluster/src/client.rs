//! The client's side of a run on a cluster: an engine that has workers compute the segments of a
//! run, and puts their rows in stream order.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, LargeBinaryArray};
use bytes::Bytes;
use datafusion::catalog::TableProvider;
use datafusion::common::exec_datafusion_err;
use forebay_planner::compile::Compiled;
use forebay_planner::error::message_of;
use forebay_planner::source::SourceSpec;
use forebay_planner::wire::{PlanMessage, WireError};
use forebay_runtime::error::{Error, Result};
use forebay_runtime::fragment::row_batch::RowBatch;
use forebay_runtime::run::{
    CacheUse, CountShare, JobWork, LastSteps, OpenJob, RunConfig, SegmentEngine, SegmentName,
    ShareName, SharedCache, SourceNames, cached_location, used_cache,
};
use forebay_runtime::source::SourceTable;
use forebay_udfs::hash::{combine, hash_bytes};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};

use crate::call::{Call, call as answered};
use crate::driver;
use crate::engine::{BlobHash, LeaseEngine, LeaseOutput};
use crate::error::{SendError, lost};
use crate::host_functions::encode;
use crate::job_codec::{JobCodec, located};
use crate::job_leases::JobLeases;
use crate::job_spec::JobSpec;
use crate::lease::LeaseSummary;
use crate::location::{absolute, absolute_text};
use crate::message::MessageError;
use crate::request::{CountRequest, WorkerRequest};
use crate::rows::joined;
use crate::run_cache::RunCache;
use crate::window::WindowSettings;
use crate::work::WorkByWorker;

/// Number of segments to which the last steps are applied concurrently.
const SEGMENTS_AT_ONCE: usize = 2;

/// A cluster, as its clients see it.
#[derive(Debug, Clone)]
pub struct Cluster {
    leases: Arc<dyn LeaseEngine>,
    settings: WindowSettings,
}

impl Cluster {
    /// Creates a client of the cluster that `leases` carries leases to.
    pub fn new(leases: Arc<dyn LeaseEngine>, settings: WindowSettings) -> Self {
        Self { leases, settings }
    }

    /// Returns the engine that carries requests to workers.
    pub(crate) fn leases(&self) -> &dyn LeaseEngine {
        &*self.leases
    }

    /// Returns the settings of windows of leases.
    pub(crate) const fn settings(&self) -> &WindowSettings {
        &self.settings
    }

    /// Returns the engine that computes the segments of a compiled pipeline.
    ///
    /// Results that wait for their turn take at most half of the memory limit in `config`; the other
    /// half is for batches and the order of rows.
    ///
    /// `mark` is the [mark](Self::cache_mark) of the cache that the pipeline uses; `None` if its plan
    /// has no cache point.
    ///
    /// # Errors
    /// Fails if the plan, or a function that it calls, cannot be sent to workers.
    pub fn engine(
        &self,
        compiled: &Compiled,
        config: &RunConfig,
        mark: Option<String>,
    ) -> Result<ClusterEngine, SendError> {
        let functions = PlanMessage::host_functions(compiled)?;
        let functions = match functions.as_slice() {
            [] => None,
            functions => {
                let blob = Bytes::from(encode(functions)?);
                Some((BlobHash::of(&blob), blob))
            }
        };
        let mut cluster = self.clone();
        if let Some(limit) = config.memory_limit {
            cluster.settings.max_bytes = cluster.settings.max_bytes.min(limit / 2);
        }
        let last =
            LastSteps::of(&compiled.chosen).map_err(|error| WireError::Cut(message_of(&error)))?;
        let names = Arc::new(Mutex::new(SourceNames::new()));
        let of_tables = Arc::clone(&names);
        let plan = PlanMessage::encode(compiled, &move |table| described(table, &of_tables))?;
        let names = std::mem::take(&mut *names.lock().unwrap_or_else(PoisonError::into_inner));
        let cache = mark
            .zip(used_cache(compiled))
            .map(|(mark, dir)| SharedCache {
                dir: absolute_text(dir),
                mark,
                names,
            });
        Ok(ClusterEngine {
            cluster,
            last: last.map(Arc::new),
            plan: plan.into(),
            functions,
            epochs: compiled.clauses.repeat.epochs.map(|epochs| epochs.get()),
            cache: cache.map(|cache| Arc::new(RunCache::new(cache))),
            work: { config.internals.analyze }.then(|| Arc::new(WorkByWorker::new())),
        })
    }
}

/// Computes the segments of one pipeline on the workers of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterEngine {
    cluster: Cluster,
    /// The steps that this process computes; `None` if workers compute all steps.
    last: Option<Arc<LastSteps>>,
    /// The written plan, encoded.
    plan: Bytes,
    /// The functions of the host language that the plan calls, encoded, with their hash; `None` if it
    /// calls none.
    functions: Option<(BlobHash, Bytes)>,
    epochs: Option<u64>,
    /// The cache that workers share; `None` if the plan has no cache point.
    cache: Option<Arc<RunCache>>,
    /// The work of each worker, if it is measured.
    work: Option<Arc<WorkByWorker>>,
}

impl SegmentEngine for ClusterEngine {
    fn compute(
        &self,
        job: &Arc<OpenJob>,
        segments: BoxStream<'static, SegmentName>,
    ) -> BoxStream<'static, Result<Vec<RowBatch>>> {
        let leases = match self.leases(job) {
            Ok(leases) => leases,
            Err(error) => return stream::iter([Err(lost(error))]).boxed(),
        };
        let schema = match &self.last {
            Some(last) => Arc::clone(last.received_schema()),
            None => job.segment_schema(),
        };
        let codec = JobCodec {
            job: Arc::clone(job),
            schema,
            hash: leases.job,
            cache: self.cache.clone(),
            work: self.work.clone(),
            blamed: Arc::default(),
        };
        let info = codec.clone();
        let segments = segments.map(move |name| info.described(name)).fuse();
        let settings = self.cluster.settings.clone();
        let (of, blamed) = (Arc::clone(job), Arc::clone(&codec.blamed));
        let delivered = driver::run(Arc::new(leases), segments, codec, settings);
        let rows = delivered.then(move |delivered| {
            let (job, blamed) = (Arc::clone(&of), Arc::clone(&blamed));
            async move {
                match delivered {
                    Ok(segment) => joined(segment.results),
                    Err(error) => Err(lost(located(error, &job, &blamed).await)),
                }
            }
        });
        let Some(last) = self.last.clone() else {
            return rows.boxed();
        };
        let job = Arc::clone(job);
        let apply = move |rows: Result<Vec<RowBatch>>| {
            let (last, job) = (Arc::clone(&last), Arc::clone(&job));
            async move { last.apply(&job, rows?).await }
        };
        rows.map(apply).buffered(SEGMENTS_AT_ONCE).boxed()
    }

    fn work(&self, job: &OpenJob) -> JobWork {
        let mut work = job.work();
        if let Some(of_workers) = &self.work {
            of_workers.add_to(&mut work);
        }
        if let Some(last) = &self.last {
            work.add_above(last.totals());
        }
        work
    }

    fn last_steps(&self) -> &[String] {
        self.last.as_ref().map_or(&[], |last| last.steps())
    }

    fn caches_elsewhere(&self) -> bool {
        true
    }

    fn cache_use(&self, _: &OpenJob) -> Option<CacheUse> {
        self.cache.as_ref().map(|cache| cache.rows())
    }

    fn publish(&self, job: &Arc<OpenJob>) -> BoxFuture<'static, ()> {
        let (cache, leases) = (self.cache.clone(), self.leases(job));
        async move {
            if let (Some(cache), Ok(leases)) = (cache, leases) {
                cache.publish(&leases, leases.job).await;
            }
        }
        .boxed()
    }

    fn count(
        &self,
        job: &Arc<OpenJob>,
        share: ShareName,
    ) -> BoxFuture<'static, Result<CountShare>> {
        let leases = self.leases(job);
        let settings = self.cluster.settings.clone();
        let data = hash_bytes(job.name.snapshot_hash.as_bytes());
        async move {
            let leases = leases.map_err(lost)?;
            let call = Call {
                affinity: combine(data, u64::from(share.splits.start)),
                request: WorkerRequest::Count(CountRequest::new(leases.job, share)),
                what: "the rows to count".to_owned(),
                avoid: Vec::new(),
            };
            let (output, summary) = answered(&leases, &settings, call).await.map_err(lost)?;
            match summary {
                LeaseSummary::Failed(failure) => Err(failure.into_error()),
                LeaseSummary::Counted => counts_of(&output),
                _ => Err(other_request(&output)),
            }
        }
        .boxed()
    }
}

impl ClusterEngine {
    /// Returns the lease engine that describes `job` to workers when they do not know it.
    fn leases(&self, job: &OpenJob) -> Result<JobLeases, MessageError> {
        let spec = JobSpec {
            epochs: self.epochs,
            cache: self.cache.as_ref().map(|cache| cache.job.clone()),
            analyze: self.work.as_ref().map(|work| work.job_number),
            is_cut: self.last.is_some(),
            stream: (*job.name).clone(),
            functions: self.functions.as_ref().map(|(hash, _)| *hash),
            plan: self.plan.to_vec(),
        };
        let spec = Bytes::from(spec.encode()?);
        Ok(JobLeases {
            inner: Arc::clone(&self.cluster.leases),
            job: BlobHash::of(&spec),
            spec,
            functions: self.functions.as_ref().map(|(_, blob)| blob.clone()),
        })
    }
}

/// Decodes the counts of a share.
fn counts_of(output: &LeaseOutput) -> Result<CountShare> {
    let batch = output.batches.first();
    let column = batch.and_then(|batch| batch.columns().first());
    let values = column.and_then(|column| column.as_any().downcast_ref::<LargeBinaryArray>());
    let value = values.filter(|values| values.len() == 1 && values.is_valid(0));
    let counts = value.and_then(|values| CountShare::from_bytes(values.value(0)));
    counts.ok_or_else(|| other_request(output))
}

fn other_request(output: &LeaseOutput) -> Error {
    let worker = &output.worker.0;
    Error::Engine(exec_datafusion_err!(
        "worker {worker} answered another request"
    ))
}

/// Describes a table to workers. Adds the location by which its cached rows are known to `names`, if
/// it is not the one that workers get.
fn described(
    table: &dyn TableProvider,
    names: &Mutex<SourceNames>,
) -> Option<(SourceSpec, String)> {
    let (spec, files) = SourceTable::describe(table)?;
    let name = cached_location(&spec.location);
    let spec = absolute(spec);
    if name != spec.location {
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(spec.location.clone(), name);
    }
    Some((spec, files))
}
