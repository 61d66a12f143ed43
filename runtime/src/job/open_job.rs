//! Open jobs, which hold everything needed to read and compute any segment of a pipeline.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_planner::clauses::{Clauses, Relax, ShuffleWindow};
use forebay_planner::compile::Compiled;
use forebay_planner::rows::canonical::clauses_text;
use forebay_planner::rows::cut::cut;
use forebay_planner::rows::mix::Mix;

use super::JobConfig;
use super::caching;
use super::open::open;
use super::open_plan::OpenPlan;
use super::resources::environment;
use super::row_counts::RowCounter;
use crate::cache::Stores;
use crate::dead_letters;
use crate::error::Result;
use crate::order::{PassName, Passes, SnapshotScan, WindowName, WindowSplits};
use crate::segment::{
    Env, OrderCache, OrderedWindow, SegmentContext, SegmentWindow, SplitCache, WindowCache,
};
use crate::stream::token::{DataSize, StreamName};

/// Divisor of the memory limit: unused staged windows may take 1/16 of the limit.
const IDLE_WINDOWS: u64 = 16;

/// An opened pipeline. A pipeline is opened once; the job is immutable and serves any number of
/// runs: of different ranks, of different epochs, and resumed ones.
///
/// A run decides which segments to request. The segments are read and computed in the job's context
/// `segments`.
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
    /// Counter of the output rows that are computed from each stored row.
    pub(crate) counter: RowCounter,
    /// Division of each pass over the inputs into windows.
    pub(crate) passes: Passes,
    /// Folder for dead letters; `None` if failed rows are not recorded.
    pub(crate) dead_letters: Option<PathBuf>,
    /// Names of the functions of the host language, which may fail in every row.
    pub(crate) host_functions: BTreeSet<String>,
    /// Estimated cost of computing the output of a stored row, in picoseconds; `None` if the
    /// optimiser made no estimate.
    pub(crate) row_cost: Option<u128>,
    /// Estimated mean size of an output row, in bytes; `None` if the optimiser made no estimate.
    pub(crate) row_bytes: Option<u64>,
    /// True if the CPU time of each operator is measured.
    pub analyze: bool,
    /// Memory limit in bytes; `None` if the user set no limit.
    pub(crate) memory_limit: Option<u64>,
    /// The context in which segments are read and computed.
    pub(crate) segments: SegmentContext,
    pub(crate) windows: WindowCache,
    /// Windows that named segments use.
    pub(super) orders: OrderCache,
}

impl OpenJob {
    /// Opens a compiled pipeline. Its cache store is opened through `stores`.
    ///
    /// # Errors
    /// Fails if a file cannot be read, if memory or threads are unavailable, or if a source
    /// includes files in the folder for dead letters.
    pub async fn open(compiled: &Compiled, config: &JobConfig, stores: &Stores) -> Result<Self> {
        let clauses = &compiled.clauses;
        let mut env = environment(config, compiled)?;
        env.cache = caching::setup(compiled, config, stores).await?;
        let cut = if config.is_cut {
            cut(&compiled.chosen)?
        } else {
            None
        };
        let chosen = cut.as_ref().map_or(&compiled.chosen, |cut| &cut.below);
        let plan = Arc::new(open(chosen, &env).await?);
        let letters = dead_letters::folder(clauses.options.dead_letters.as_deref())?;
        if let Some(folder) = &letters {
            for source in plan.all_data().flat_map(|data| &data.sources) {
                dead_letters::check_folder(folder, &**source)?;
            }
        }
        let name = Arc::new(stream_name(compiled, &plan, config.seed)?);
        let snapshot = &plan.data.snapshot;
        let rows = u128::from(snapshot.rows().max(1));
        let report = compiled.report.as_ref();
        // A global shuffle has one window, which stays.
        let is_global = clauses.shuffle == Some(ShuffleWindow::Global);
        let is_staged_again = config.epochs != Some(1) && !is_global && !config.is_reread;
        Ok(Self {
            clauses: clauses.clone(),
            seed: config.seed,
            name,
            counter: RowCounter::of(compiled, &plan, &env)?,
            passes: Passes::new(snapshot, inputs(&plan), clauses.shuffle, config.seed),
            dead_letters: letters,
            host_functions: { compiled.chosen.host_calls().into_iter() }
                .map(|function| function.name().to_owned())
                .collect(),
            row_cost: report.map(|report| report.epoch_cost() / rows),
            row_bytes: report.and_then(|report| report.row_bytes),
            analyze: config.analyze,
            memory_limit: config.memory_limit,
            segments: SegmentContext {
                is_shuffled: clauses.shuffle.is_some(),
                split_cache: is_staged_again.then(|| Arc::new(SplitCache::new(&env.memory))),
                ..SegmentContext::new(&plan.data, &plan.reader, &env)
            },
            windows: WindowCache::new(config.memory() / IDLE_WINDOWS),
            orders: OrderCache::new(config.memory() / IDLE_WINDOWS),
            plan,
        })
    }

    /// Returns the number of stored rows.
    pub fn rows(&self) -> u64 {
        self.plan.data.snapshot.rows()
    }

    /// Returns the number of bytes that a read of all stored rows takes.
    pub fn bytes(&self) -> u64 {
        self.plan.data.snapshot.bytes()
    }

    /// Returns the number of splits of the stored rows.
    pub fn splits(&self) -> usize {
        self.plan.data.snapshot.splits.len()
    }

    /// Formats the fragment for EXPLAIN, one line per node. The nodes of the cached prefix stand
    /// below the leaf that outputs the cached rows.
    pub fn explain(&self) -> String {
        self.plan.reader.explain()
    }

    /// Returns the threads, memory and cache of the job.
    pub(crate) const fn env(&self) -> &Env {
        &self.segments.env
    }

    /// Returns the MIX of the pipeline; `None` if the pipeline has no MIX.
    pub(crate) fn mix(&self) -> Option<&Mix> {
        self.plan.mixed.as_ref().map(|mixed| &mixed.mix)
    }

    /// Returns the window of pass `pass` over input `input` that has index `index` and consists of
    /// `splits`. Its rows are not ordered yet.
    pub(crate) fn window(
        &self,
        input: usize,
        pass: PassName,
        (index, splits): (u32, &WindowSplits),
    ) -> OrderedWindow {
        let name = self.passes.name(input, pass, index);
        OrderedWindow {
            name: SegmentWindow::OfPass {
                input: input as u32,
                epoch: pass.0,
                pass: pass.1,
                index,
            },
            key: self.passes.key(pass),
            window: self.windows.get(&self.segments, name, splits),
            rows: Arc::default(),
            is_pruned: false,
        }
    }

    /// Returns a window that consists of the single split `split` and belongs to no pass. `key` is
    /// the hash key of the pass whose draws its rows have.
    pub(crate) fn split(&self, split: u32, key: u64) -> OrderedWindow {
        let rows = self.plan.data.snapshot.splits[split as usize].rows;
        let (name, splits) = (WindowName::Split(split), vec![split]);
        let splits = WindowSplits { splits, rows };
        OrderedWindow {
            name: SegmentWindow::Split { split, key },
            key,
            window: self.windows.get(&self.segments, name, &splits),
            rows: Arc::default(),
            is_pruned: false,
        }
    }
}

/// Returns the number of MIX inputs (1 without MIX), and for each scan of the snapshot, the index
/// of its input.
fn inputs(plan: &OpenPlan) -> (usize, Arc<[usize]>) {
    let scans = plan.data.snapshot.scans.iter();
    match &plan.mixed {
        None => (1, scans.map(|_| 0).collect()),
        Some(mixed) => {
            let input = |scan: &SnapshotScan| {
                let has = |scans: &BTreeSet<u32>| scans.contains(&scan.occurrence);
                mixed.scans.iter().position(has).unwrap_or(0)
            };
            (mixed.scans.len(), scans.map(input).collect())
        }
    }
}

/// Returns the name of the stream that the pipeline `compiled` yields over the data of `plan` with
/// `seed`.
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
