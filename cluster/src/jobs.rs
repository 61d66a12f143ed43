//! The jobs that a worker has opened, by the hash of their descriptions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::datasource::provider_as_source;
use forebay_planner::wire::PlanMessage;
use forebay_runtime::cache::Stores;
use forebay_runtime::objects::ObjectStores;
use forebay_runtime::run::{JobCache, JobConfig, OpenJob, SharedCache, SourceNames};
use forebay_runtime::source::SourceTable;
use forebay_udfs::{DeclaredFunction, HostFunctions};
use tokio::sync::OnceCell;

use crate::cache_handler;
use crate::cache_request::CacheRequest;
use crate::engine::BlobHash;
use crate::handler::{BlobError, BlobSource, HandlerCounts};
use crate::host_functions::{FunctionRule, decode};
use crate::job_spec::{JobSpec, MAX_JOB_BYTES};
use crate::lease::LeaseSummary;
use crate::location::mapped;
use crate::sources::Sources;

/// Number of jobs that a worker keeps open.
const OPEN_JOBS: usize = 16;

/// Settings of the jobs of a worker.
#[derive(Debug, Clone, Default)]
pub struct JobSettings {
    /// Number of compute threads for each job; `None` to share one thread per core.
    pub threads: Option<usize>,
    /// Memory limit of each job in bytes; `None` for the default.
    pub memory_limit: Option<u64>,
    /// Roots of data whose place on this machine differs from their place on the client's: the
    /// client's root, and this machine's.
    pub roots: Vec<(String, String)>,
    /// The object stores of sources and caches. Others are opened with the credentials of the
    /// environment.
    pub objects: ObjectStores,
    /// Rule for jobs that call functions of the host language of their clients.
    pub functions: FunctionRule,
}

/// A job that a worker has opened.
#[derive(Debug)]
pub(crate) struct WorkerJob {
    pub(crate) open: Arc<OpenJob>,
    /// The functions of the host language that the job calls.
    pub(crate) functions: Vec<Arc<dyn DeclaredFunction>>,
}

/// A job that is opened when a lease first needs it.
type OnceOpen = Arc<OnceCell<Arc<WorkerJob>>>;

/// The jobs that a worker has opened. Leases of the same job share it.
#[derive(Debug, Default)]
pub struct Jobs {
    settings: JobSettings,
    sources: Arc<Sources>,
    /// The stores of caches.
    stores: Stores,
    /// The jobs, least recently used first.
    recent: Mutex<VecDeque<(BlobHash, OnceOpen)>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The reason why a worker cannot open a job.
#[derive(Debug)]
pub(crate) enum JobError {
    /// The description is at fault, so every worker refuses it.
    Refused(String),
    /// This machine is at fault: it lacks the data, or is of another release.
    Unfit(String),
    /// A blob of the job cannot be read.
    Blob(BlobError),
}

impl Jobs {
    /// Creates an empty set of jobs over `sources`.
    pub(crate) fn new(settings: JobSettings, sources: Arc<Sources>) -> Self {
        Self {
            stores: Stores::new(settings.objects.clone()),
            settings,
            sources,
            ..Self::default()
        }
    }

    /// Returns the number of open jobs, and how many leases found theirs open.
    pub(crate) fn counts(&self) -> HandlerCounts {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let open_jobs = recent.iter().filter(|(_, cell)| cell.initialized());
        HandlerCounts {
            open_jobs: open_jobs.count() as u64,
            job_hits: self.hits.load(Ordering::Relaxed),
            job_misses: self.misses.load(Ordering::Relaxed),
        }
    }

    /// Returns the latest incidents with functions.
    pub(crate) fn events(&self) -> Vec<String> {
        self.settings.functions.events()
    }

    /// Returns the job whose description has the hash `hash`. Opens the job if necessary, from its
    /// blobs.
    pub(crate) async fn get(
        &self,
        hash: BlobHash,
        blobs: &dyn BlobSource,
    ) -> Result<Arc<WorkerJob>, JobError> {
        let cell = self.cell(hash);
        let count = if cell.initialized() {
            &self.hits
        } else {
            &self.misses
        };
        count.fetch_add(1, Ordering::Relaxed);
        let opened = async || {
            let read = async |hash| blobs.get(hash).await.map_err(JobError::Blob);
            let spec = JobSpec::decode(&read(hash).await?);
            let spec = spec.map_err(|error| unfit_or_refused(&error))?;
            let functions = match (spec.functions, &self.settings.functions) {
                (None, _) => Vec::new(),
                (Some(_), FunctionRule::Refuse(why)) => return Err(JobError::Unfit(why.clone())),
                (Some(hash), FunctionRule::Run(host)) => functions(&**host, &read(hash).await?)?,
            };
            Ok(Arc::new(self.open(spec, functions).await?))
        };
        cell.get_or_try_init(opened).await.map(Arc::clone)
    }

    fn cell(&self, hash: BlobHash) -> OnceOpen {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = recent.iter().position(|(of, _)| *of == hash);
        let known = known.and_then(|at| recent.remove(at));
        let cell = known.map(|(_, cell)| cell).unwrap_or_default();
        recent.push_back((hash, Arc::clone(&cell)));
        let closed = (recent.len() > OPEN_JOBS).then(|| recent.pop_front());
        // A job that calls functions ends their processes, which takes a while.
        drop(recent);
        drop(closed);
        cell
    }

    /// Returns the job whose description has the hash `hash`, if it is open.
    pub(crate) fn opened(&self, hash: BlobHash) -> Option<Arc<WorkerJob>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, cell) = recent.iter().find(|(of, _)| *of == hash)?;
        cell.get().map(Arc::clone)
    }

    /// Answers a request about a cache.
    pub(crate) async fn answer(&self, request: &CacheRequest) -> LeaseSummary {
        cache_handler::answer(&self.stores, &self.settings.roots, request).await
    }

    async fn open(
        &self,
        spec: JobSpec,
        functions: Vec<Arc<dyn DeclaredFunction>>,
    ) -> Result<WorkerJob, JobError> {
        let plan = PlanMessage::decode(&spec.plan, MAX_JOB_BYTES, &functions);
        let plan = plan.map_err(|error| JobError::Refused(error.to_string()))?;
        let mut sources = Vec::with_capacity(plan.sources().len());
        let mut names = SourceNames::new();
        for source in plan.sources() {
            let opened = self.sources.get(&source.spec, &source.files).await;
            let opened = opened.map_err(JobError::Unfit)?;
            if let Some(cache) = &spec.cache {
                let sent = &source.spec.location;
                let name = cache.names.get(sent).unwrap_or(sent).clone();
                names.insert(opened.spec().location.clone(), name);
            }
            sources.push(provider_as_source(Arc::new(SourceTable::new(opened))));
        }
        // A plan that differs is the sign of another release or of other files.
        let compiled = plan.compile(&sources);
        let compiled = compiled.map_err(|error| JobError::Unfit(error.to_string()))?;
        let config = JobConfig {
            seed: spec.stream.seed,
            epochs: spec.epochs,
            is_repeated: spec.epochs != Some(1),
            // A worker keeps many jobs open, whose rows together would fill its memory.
            is_reread: true,
            threads: self.settings.threads,
            memory_limit: self.settings.memory_limit,
            cache: match spec.cache {
                Some(cache) => JobCache::Shared(SharedCache {
                    dir: mapped(&self.settings.roots, &cache.dir),
                    mark: cache.mark,
                    names,
                }),
                None => JobCache::Elsewhere,
            },
            analyze: spec.analyze.is_some(),
            is_cut: spec.is_cut,
        };
        let job = OpenJob::open(&compiled, &config, &self.stores).await;
        let job = job.map_err(|error| JobError::Unfit(error.to_string()))?;
        if *job.name != spec.stream {
            return Err(JobError::Unfit(format!(
                "the data of this machine differs from the client's: {}, the client has {}; snapshot {}, the client has {}",
                job.name.data, spec.stream.data, job.name.snapshot_hash, spec.stream.snapshot_hash
            )));
        }
        Ok(WorkerJob {
            open: Arc::new(job),
            functions,
        })
    }
}

/// Decodes the functions of a job.
fn functions(
    host: &dyn HostFunctions,
    blob: &[u8],
) -> Result<Vec<Arc<dyn DeclaredFunction>>, JobError> {
    let codes = decode(blob).map_err(|error| JobError::Refused(error.to_string()))?;
    let functions = codes.into_iter().map(|code| host.decode(code));
    functions.collect::<Result<_, _>>().map_err(JobError::Unfit)
}

fn unfit_or_refused(error: &crate::message::MessageError) -> JobError {
    match error {
        crate::message::MessageError::Release { .. } => JobError::Unfit(error.to_string()),
        error => JobError::Refused(error.to_string()),
    }
}
