//! Open jobs: everything needed to read and compute any segment of a pipeline.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::Result as EngineResult;
use forebay_planner::clauses::{Clauses, Relax};
use forebay_planner::compile::Compiled;
use forebay_planner::rows::canonical::clauses_text;
use forebay_planner::rows::mix::Mix;

use super::JobConfig;
use super::caching;
use super::open::open;
use super::open_plan::OpenPlan;
use super::resources::environment;
use super::row_counts::{RowCounter, SharedCounts};
use crate::cache::Stores;
use crate::dead_letters;
use crate::error::Result;
use crate::fragment::NodeTotals;
use crate::fragment::row_batch::RowBatch;
use crate::group_key::KeyColumns;
use crate::memory::DEFAULT_MEMORY;
use crate::order::{PassName, Passes, StoredRow, WindowName, WindowSplits};
use crate::segment::{Env, LazyWindow, ReadSegment, SegmentContext, SegmentRequest, WindowCache};
use crate::stream::group::Grouping;
use crate::stream::token::{DataSize, StreamName};

/// Divisor of the memory limit: unused staged windows may take 1/16 of it.
const IDLE_WINDOWS: u64 = 16;

/// An opened pipeline. It is opened once, is immutable, and serves any number of runs: of different ranks, of
/// different epochs, and resumed ones.
///
/// `read` and `compute` process the segment of a request, which
/// names the segment's rows. A run decides which rows to request.
#[derive(Debug)]
pub struct OpenJob {
    /// The plan, opened over its data.
    pub(crate) plan: Arc<OpenPlan>,
    /// The training clauses of the pipeline (SHUFFLE, BATCH, REPEAT, ..).
    pub clauses: Clauses,
    /// The seed that determines the order of rows and all random draws.
    pub seed: u64,
    /// Identity of the stream, which is part of its resume tokens.
    pub name: Arc<StreamName>,
    /// Counts the output rows that each stored row gives.
    pub(crate) counter: RowCounter,
    /// The windows of each pass over the inputs.
    pub(crate) passes: Passes,
    /// Folder for dead letters; `None` if failed rows are not recorded.
    pub(crate) dead_letters: Option<PathBuf>,
    /// Functions of the host language, which may fail in every row.
    pub(crate) host_functions: BTreeSet<String>,
    /// Estimated cost of computing a stored row, in picoseconds; `None` without an estimate of the
    /// optimiser.
    pub(crate) row_cost: Option<u128>,
    /// Memory limit, if the user set one.
    pub(crate) memory_limit: Option<u64>,
    segments: SegmentContext,
    windows: WindowCache,
}

impl OpenJob {
    /// Opens a compiled pipeline. Its cache may be in one of `stores`.
    ///
    /// # Errors
    /// Fails if a file cannot be read, memory or threads are unavailable, or a source includes the folder for dead
    /// letters.
    pub async fn open(compiled: &Compiled, config: &JobConfig, stores: &Stores) -> Result<Self> {
        let clauses = &compiled.clauses;
        let mut env = environment(config)?;
        let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
        env.cache = caching::setup(compiled, stores, config.seed, config.epochs, memory).await?;
        let plan = Arc::new(open(&compiled.chosen, &env).await?);
        let letters = dead_letters::folder(clauses.options.dead_letters.as_deref())?;
        if let Some(folder) = &letters {
            for source in plan.all_data().flat_map(|data| &data.sources) {
                dead_letters::check_folder(folder, &**source)?;
            }
        }
        let name = Arc::new(stream_name(compiled, &plan, config.seed)?);
        let keys = KeyColumns::of(clauses, plan.reader.fragment.schema());
        let shared = SharedCounts::of(compiled, &plan)?;
        let buckets = Grouping::of(clauses).buckets;
        let snapshot = &plan.data.snapshot;
        let context = SegmentContext::new(&plan.data, &plan.reader, &env);
        let row_cost = compiled
            .report
            .as_ref()
            .map(|report| report.epoch_cost() / u128::from(snapshot.rows().max(1)));
        Ok(Self {
            clauses: clauses.clone(),
            seed: config.seed,
            name,
            counter: RowCounter::new(&plan, keys, buckets, shared, &env),
            passes: Passes::new(
                Arc::clone(snapshot),
                inputs(&plan),
                clauses.shuffle,
                config.seed,
            ),
            dead_letters: letters,
            host_functions: compiled.chosen.host_functions(),
            row_cost,
            memory_limit: config.memory_limit,
            segments: context,
            windows: WindowCache::new(memory / IDLE_WINDOWS),
            plan,
        })
    }

    /// Returns the number of stored rows.
    pub fn rows(&self) -> u64 {
        self.plan.data.snapshot.rows()
    }

    /// Returns the number of bytes that are read for all stored rows.
    pub fn bytes(&self) -> u64 {
        self.plan.data.snapshot.bytes()
    }

    /// Returns the number of splits of the stored rows.
    pub fn splits(&self) -> usize {
        self.plan.data.snapshot.splits.len()
    }

    /// Formats the fragment: a line per node, with the cached prefix below its leaf.
    pub fn explain(&self) -> String {
        self.plan.reader.explain()
    }

    /// Returns the work of each node of the fragment so far, root first.
    pub fn totals(&self) -> Vec<NodeTotals> {
        self.plan.reader.totals()
    }

    /// Returns the time spent waiting for reads, summed over segments, and the bytes read.
    pub fn reading(&self) -> (Duration, u64) {
        self.plan.reader.reading()
    }

    /// Returns the threads, memory and cache.
    pub(crate) const fn env(&self) -> &Env {
        &self.segments.env
    }

    /// Returns the number of rows in a segment whose output has about [`Env::segment_bytes`].
    pub(crate) fn rows_by_bytes(&self) -> u64 {
        self.segments.rows_by_bytes()
    }

    /// Returns the MIX of the pipeline; `None` if it has none.
    pub(crate) fn mix(&self) -> Option<&Mix> {
        self.plan.mixed.as_ref().map(|mixed| &mixed.mix)
    }

    /// Returns a window of a pass over an input.
    pub(crate) fn window(
        &self,
        input: usize,
        pass: PassName,
        (index, splits): (u32, &WindowSplits),
    ) -> Arc<LazyWindow> {
        let name = self.passes.name(input, pass, index);
        self.windows.get(&self.segments, name, splits)
    }

    /// Returns the rows of one split, outside of any pass.
    pub(crate) fn split(&self, split: u32) -> Arc<LazyWindow> {
        let rows = self.plan.data.snapshot.splits[split as usize].rows;
        let splits = WindowSplits {
            splits: vec![split],
            rows,
        };
        self.windows
            .get(&self.segments, WindowName::Split(split), &splits)
    }

    /// Orders the rows of a window for the pass with this key. If `staged` is given, rows that its
    /// pruning removed are left out.
    ///
    /// # Errors
    /// Fails if there are more rows than the memory limit can order, or `staged` cannot be read.
    pub(crate) async fn order(
        &self,
        splits: WindowSplits,
        key: u64,
        staged: Option<&LazyWindow>,
    ) -> EngineResult<Vec<StoredRow>> {
        let staged = match staged {
            Some(window) => Some(window.get().await?),
            None => None,
        };
        let shuffle = self.clauses.shuffle;
        self.segments.order(splits, shuffle, key, staged).await
    }

    /// Reads the rows of a segment.
    ///
    /// # Errors
    /// Fails if a file is damaged or was changed, or the disk for spilled rows is full.
    pub(crate) async fn read(&self, request: SegmentRequest) -> EngineResult<ReadSegment> {
        request.read(&self.segments).await
    }

    /// Computes the rows of a segment, in order, in one batch or several.
    ///
    /// # Errors
    /// Fails if the rows are not those that were planned.
    pub(crate) async fn compute(&self, segment: ReadSegment) -> EngineResult<Vec<RowBatch>> {
        segment.compute(&self.segments).await
    }
}

/// Returns the number of inputs, and the input of each scan of the snapshot.
fn inputs(plan: &OpenPlan) -> (usize, Arc<[usize]>) {
    let scans = plan.data.snapshot.scans.iter();
    match &plan.mixed {
        None => (1, scans.map(|_| 0).collect()),
        Some(mixed) => {
            let input = |occurrence| {
                let mut inputs = mixed.scans.iter();
                inputs
                    .position(|scans| scans.contains(occurrence))
                    .unwrap_or(0)
            };
            let of_scan = scans.map(|scan| input(&scan.occurrence)).collect();
            (mixed.scans.len(), of_scan)
        }
    }
}

/// Returns the name of the stream of a pipeline over its data.
fn stream_name(compiled: &Compiled, plan: &OpenPlan, seed: u64) -> Result<StreamName> {
    let files = || {
        let scans = plan.all_data().flat_map(|data| &data.snapshot.scans);
        scans.flat_map(|scan| &scan.manifest.files)
    };
    let plan_hash = match compiled.clauses.options.relax {
        Relax::Exact => None,
        _ => Some(compiled.plan_hash()?),
    };
    Ok(StreamName {
        semantic_hash: compiled.semantic_hash.to_string(),
        clauses: clauses_text(&compiled.clauses),
        snapshot_hash: plan.data_hash(),
        data: DataSize {
            files: files().count() as u64,
            rows: plan.all_data().map(|data| data.snapshot.rows()).sum(),
            bytes: files().map(|file| file.size).fold(0, u64::saturating_add),
        },
        seed,
        plan_hash,
    })
}
