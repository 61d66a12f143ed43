//! An opened pipeline: what to read, in which snapshot, and the fragments over it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion::common::{Result, not_impl_err};
use datafusion::datasource::source_as_provider;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::logical_expr::TableSource;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use forebay_planner::rows::membership::{
    above_mix, arm_scans, is_keyed, is_one_to_one, is_random, membership, multiplies, visit_stream,
    volatile,
};
use forebay_planner::rows::mix::Mix;
use forebay_planner::rows::{RowOp, RowPlan};
use forebay_udfs::room::DecodeRoom;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::cached::{CacheSetup, CachedPrefix, Cut, cut};
use crate::fragment::compile::Compiler;
use crate::fragment::lookup::LookupTable;
use crate::fragment::scan::CACHE_LEAF;
use crate::fragment::{Fragment, NodeTotals};
use crate::limit;
use crate::lookups::Lookups;
use crate::pool::ComputePool;
use crate::snapshot::{ScanSource, Snapshot};
use crate::source::{Source, SourceTable};
use crate::stage::SpillSpace;

/// What a run works with: threads, memory, DataFusion's context.
#[derive(Debug, Clone)]
pub struct Env {
    /// Compute threads.
    pub pool: ComputePool,
    /// Memory of windows; what does not fit is spilled.
    pub memory: Arc<dyn MemoryPool>,
    /// Memory of the images that are being decoded.
    pub room: Arc<DecodeRoom>,
    /// Room for what is spilled.
    pub spill: Arc<SpillSpace>,
    /// Context of fragments.
    pub ctx: Arc<TaskContext>,
    /// Segments that are computed side by side, that are read ahead of them, and splits that are read
    /// side by side: each so many.
    pub in_flight: usize,
    /// Output bytes of a segment, about.
    pub segment_bytes: u64,
    /// Where the rows of a cache point are kept; without, they are computed.
    pub cache: Option<CacheSetup>,
}

impl Env {
    /// Bytes that ordering the rows of a window may take: the memory limit, half of which windows have.
    pub(crate) fn order_limit(&self) -> u64 {
        match self.memory.memory_limit() {
            MemoryLimit::Finite(bytes) => (bytes as u64).saturating_mul(2),
            _ => u64::MAX,
        }
    }
}

/// What a scan of a fragment reads.
#[derive(Debug, Clone)]
pub struct ScanRead {
    /// Columns of the source, ascending.
    pub projection: Vec<usize>,
    /// Predicate over the source's columns by which a reader may leave out rows.
    pub prune: Option<Arc<dyn PhysicalExpr>>,
    /// The same over the projected columns: rows for which it is not true are left out once read.
    pub keep: Option<Arc<dyn PhysicalExpr>>,
}

/// A fragment with what its scans read, by the snapshot's scans.
#[derive(Debug)]
pub struct Reader {
    /// The fragment.
    pub fragment: Fragment,
    /// One per scan of the snapshot.
    pub reads: Vec<ScanRead>,
    /// What of the fragment's input is kept from epoch to epoch, if anything.
    pub cached: Option<CachedPrefix>,
    reading: AtomicU64,
    read_bytes: AtomicU64,
}

/// The part of a plan that decides which rows reach the output.
#[derive(Debug)]
pub struct Membership {
    /// Runs it.
    pub reader: Arc<Reader>,
    /// Whether draws take part, so that each epoch has other rows.
    pub is_random: bool,
    /// A call in it that may decide otherwise the next time.
    pub volatile: Option<String>,
}

/// An opened pipeline.
#[derive(Debug)]
pub struct Job {
    /// Its stored rows.
    pub snapshot: Arc<Snapshot>,
    /// Computes its output.
    pub reader: Arc<Reader>,
    /// Decides its rows and their groups; absent where each stored row gives exactly one, and none is grouped by
    /// what it holds.
    pub membership: Option<Membership>,
    /// Whether a stored row may give several rows.
    pub multiplies: bool,
    /// How its inputs are mixed, if they are.
    pub mixed: Option<Mixed>,
    /// The data of the right sides of its lookups, in evaluation order.
    lookups: Vec<Arc<Snapshot>>,
}

/// The MIX of a pipeline.
#[derive(Debug)]
pub struct Mixed {
    /// Weights, and when an epoch ends.
    pub mix: Mix,
    /// By arm: the occurrences of the scans whose rows it gives.
    pub scans: Vec<BTreeSet<u32>>,
    /// Decides the rows of the arms; absent where each stored row gives exactly one.
    pub arms: Option<Arc<Reader>>,
    /// Whether something above the arms decides rows.
    pub drops: bool,
}

impl Job {
    /// Opens a plan: reads the right sides of lookups, resolves limits to stored rows, and plans the
    /// fragments.
    pub fn open<'a>(plan: &'a RowPlan, env: &'a Env) -> BoxFuture<'a, Result<Self>> {
        async move {
            let mut ranges = BTreeMap::new();
            visit_stream(plan, &mut |node| {
                if let RowOp::Scan { occurrence, .. } = &node.op {
                    ranges.insert(*occurrence, 0..u64::MAX);
                }
            });
            let lookups = Lookups::read(plan, env).await?;
            let plan = limit::resolve(plan.clone(), &mut ranges, &lookups, env).await?;
            Self::over(&plan, &ranges, &lookups, env).await
        }
        .boxed()
    }

    /// Opens a plan without limits, of whose scans only these stored rows are seen. The right sides of its
    /// lookups are among those that were read.
    pub async fn over(
        plan: &RowPlan,
        ranges: &BTreeMap<u32, Range<u64>>,
        lookups: &Lookups,
        env: &Env,
    ) -> Result<Self> {
        let (tables, lookups) = lookups.of(plan)?;
        let snapshot = Arc::new(stored_rows(plan, ranges)?);
        let cut = env.cache.as_ref().map(|setup| (setup, cut(plan)));
        let cached = match cut {
            Some((setup, cut)) => match cut? {
                Some(Cut { prefix, above }) => CachedPrefix::open(setup, &prefix, &snapshot)
                    .await?
                    .map(|cached| (above, cached)),
                None => None,
            },
            None => None,
        };
        let decides = if is_one_to_one(plan) && !is_keyed(plan) {
            None
        } else {
            let plan = membership(plan.clone())?;
            let reader = Arc::new(Reader::try_new(&plan, tables.clone(), None)?);
            Some(Membership {
                reader,
                is_random: is_random(&plan),
                volatile: volatile(&plan),
            })
        };
        let mixed = Mixed::of(plan, &tables)?;
        Ok(Self {
            snapshot,
            reader: Arc::new(Reader::try_new(plan, tables, cached)?),
            membership: decides,
            multiplies: multiplies(plan),
            mixed,
            lookups,
        })
    }

    /// The data that decides the stream: what is streamed, and the right sides of lookups.
    pub fn data(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        std::iter::once(&self.snapshot).chain(&self.lookups)
    }

    /// Names the data: the [hash](Snapshot::hash) of what is streamed, or BLAKE3 over it and those of the right
    /// sides of lookups.
    pub fn data_hash(&self) -> String {
        if self.lookups.is_empty() {
            return self.snapshot.hash();
        }
        let mut hasher = blake3::Hasher::new();
        for snapshot in self.data() {
            hasher.update(snapshot.hash().as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

impl Mixed {
    fn of(plan: &RowPlan, tables: &[Arc<LookupTable>]) -> Result<Option<Self>> {
        let (Some(node), Some(mix)) = (plan.mixed(), plan.mix()) else {
            return Ok(None);
        };
        let arms = match is_one_to_one(node) {
            true => None,
            false => {
                let plan = membership(node.clone())?;
                // Inputs come first, so the tables of the arms do.
                Some(Arc::new(Reader::try_new(&plan, tables.to_vec(), None)?))
            }
        };
        Ok(Some(Self {
            mix: mix.clone(),
            scans: arm_scans(plan),
            arms,
            drops: !is_one_to_one(&above_mix(plan.clone())?),
        }))
    }
}

impl Reader {
    /// Plans a fragment, or the part of it above what is cached.
    fn try_new(
        plan: &RowPlan,
        tables: Vec<Arc<LookupTable>>,
        cached: Option<(RowPlan, CachedPrefix)>,
    ) -> Result<Self> {
        let mut reads = Vec::new();
        for node in stream_scans(plan) {
            let RowOp::Scan {
                source,
                projection,
                prune,
                ..
            } = &node.op
            else {
                continue;
            };
            let (prune, keep) = match conjunction(prune.iter().cloned()) {
                None => (None, None),
                Some(predicate) => (
                    Some(Compiler::over(&source.schema()).compile(&predicate)?),
                    Some(Compiler::over(&node.schema).compile(&predicate)?),
                ),
            };
            let projection = projection.clone();
            reads.push(ScanRead {
                projection,
                prune,
                keep,
            });
        }
        let (above, cached) = cached.unzip();
        let fragment = Fragment::try_new(above.as_ref().unwrap_or(plan), tables)?;
        Ok(Self {
            fragment,
            reads,
            cached,
            reading: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        })
    }

    /// The fragment as text, a line per node, with what is cached below its leaf.
    pub fn explain(&self) -> String {
        let mut text = self.fragment.explain();
        if let Some(cached) = &self.cached {
            let leaf = text
                .lines()
                .find(|line| line.trim_start().starts_with(CACHE_LEAF));
            let indent = leaf.map_or(0, |line| line.len() - line.trim_start().len()) + 2;
            for line in cached.fragment.explain().lines() {
                text += &format!("{:indent$}{line}\n", "");
            }
        }
        text
    }

    /// What each node did so far, root first.
    pub fn totals(&self) -> Vec<NodeTotals> {
        let mut totals = self.fragment.totals();
        if let Some(cached) = &self.cached {
            let leaf = totals
                .iter()
                .position(|node| node.text.starts_with(CACHE_LEAF));
            let (at, depth) = leaf.map_or((totals.len(), 0), |at| (at + 1, totals[at].depth + 1));
            let below = cached.fragment.totals().into_iter().map(|mut node| {
                node.depth += depth;
                node
            });
            totals.splice(at..at, below);
        }
        totals
    }

    /// Notes that rows were read.
    pub fn note_reading(&self, time: Duration, bytes: u64) {
        self.reading
            .fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Time spent waiting for rows to be read, added up over segments, and their bytes.
    pub fn reading(&self) -> (Duration, u64) {
        let time = Duration::from_nanos(self.reading.load(Ordering::Relaxed));
        (time, self.read_bytes.load(Ordering::Relaxed))
    }
}

/// The stored rows of a plan without limits, of whose scans only these are seen.
pub fn stored_rows(plan: &RowPlan, ranges: &BTreeMap<u32, Range<u64>>) -> Result<Snapshot> {
    let mut scans = Vec::new();
    for node in stream_scans(plan) {
        let RowOp::Scan {
            occurrence, source, ..
        } = &node.op
        else {
            continue;
        };
        scans.push(ScanSource {
            occurrence: *occurrence,
            source: open_source(source)?,
            range: ranges.get(occurrence).cloned().unwrap_or(0..u64::MAX),
        });
    }
    Snapshot::try_new(scans)
}

/// The scans whose rows flow to the output, by ascending occurrence.
fn stream_scans(plan: &RowPlan) -> Vec<&RowPlan> {
    let mut scans = Vec::new();
    visit_stream(plan, &mut |node| {
        if matches!(node.op, RowOp::Scan { .. }) {
            scans.push(node);
        }
    });
    scans
}

/// The source of a table.
pub fn open_source(table: &Arc<dyn TableSource>) -> Result<Arc<dyn Source>> {
    let provider = source_as_provider(table)?;
    match provider.downcast_ref::<SourceTable>() {
        Some(table) => Ok(Arc::clone(table.source())),
        None => not_impl_err!(
            "a pipeline reads from files; a table of another kind is not supported yet"
        ),
    }
}
