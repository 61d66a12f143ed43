//! A fragment, with the columns that its scans read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion::common::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use forebay_planner::rows::{RowOp, RowPlan};

use super::cached_prefix::CachedPrefix;
use super::data::stream_scans;
use crate::fragment::compile::Compiler;
use crate::fragment::lookup::LookupTable;
use crate::fragment::scan::CACHE_LEAF;
use crate::fragment::{Fragment, NodeTotals};

/// The part of a source that a scan reads.
#[derive(Debug, Clone)]
pub(crate) struct ScanRead {
    /// Indices of the source's columns to read, ascending.
    pub projection: Vec<usize>,
    /// Predicate over all columns of the source. A reader may skip rows for which the predicate is
    /// not true.
    pub prune: Option<Arc<dyn PhysicalExpr>>,
    /// The predicate of `prune`, but compiled over the projected columns, to drop rows after they
    /// were read.
    pub keep: Option<Arc<dyn PhysicalExpr>>,
}

/// A fragment, with the columns and predicates of each of its scans.
#[derive(Debug)]
pub(crate) struct FragmentReader {
    /// The fragment, which computes output rows from the rows of the scans.
    pub fragment: Fragment,
    /// Columns and predicates of each scan of the snapshot.
    pub reads: Vec<ScanRead>,
    /// Cached prefix of the fragment, if there is one.
    pub cached: Option<CachedPrefix>,
    reading: AtomicU64,
    read_bytes: AtomicU64,
}

impl FragmentReader {
    /// Plans the fragment of `plan`. `cached` holds the part of `plan` above the cache point, and
    /// the cached prefix. With `cached`, only the part above the cache point is planned.
    pub(crate) fn try_new(
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
            reads.push(ScanRead {
                projection: projection.clone(),
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

    /// Returns the cached prefix if it contains the scan with index `scan` in the snapshot.
    pub(super) fn cached_below(&self, scan: usize) -> Option<&CachedPrefix> {
        self.cached.as_ref().filter(|cached| cached.holds(scan))
    }

    /// Formats the fragment for EXPLAIN, one line per node. The nodes of the cached prefix stand
    /// below the leaf that outputs the cached rows.
    pub(crate) fn explain(&self) -> String {
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

    /// Returns the metrics of each node over all segments so far, root first. The nodes of the
    /// cached prefix follow the leaf that outputs the cached rows.
    pub(crate) fn totals(&self) -> Vec<NodeTotals> {
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

    /// Adds a read that took `time` and returned `bytes` bytes to the totals that
    /// [`reading`](Self::reading) returns.
    pub(crate) fn note_reading(&self, time: Duration, bytes: u64) {
        self.reading
            .fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the time spent waiting for reads, summed over all segments and windows, and the
    /// number of bytes read.
    pub(crate) fn reading(&self) -> (Duration, u64) {
        let time = Duration::from_nanos(self.reading.load(Ordering::Relaxed));
        (time, self.read_bytes.load(Ordering::Relaxed))
    }
}
