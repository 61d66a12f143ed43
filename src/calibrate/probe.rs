//! A probe that also times what it evaluates.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use forebay_planner::optimizer::profile::{Evaluated, Probe};
use forebay_runtime::engine::{Sample, prepare};

use super::RUNS;
use super::fit::Measured;
use crate::error::{Result, engine};

/// What was measured so far.
#[derive(Debug, Default)]
pub(super) struct Timings {
    of: Mutex<BTreeMap<String, Vec<Measured>>>,
}

impl Timings {
    pub(super) fn by_function(&self) -> BTreeMap<String, Vec<Measured>> {
        self.of.lock().map(|of| of.clone()).unwrap_or_default()
    }

    fn note(&self, function: &str, measured: Measured) {
        if let Ok(mut of) = self.of.lock() {
            of.entry(function.to_owned()).or_default().push(measured);
        }
    }
}

/// A sample whose evaluations are timed, on one thread.
#[derive(Debug)]
pub(super) struct Timed {
    sample: Sample,
    timings: std::sync::Arc<Timings>,
    pool: rayon::ThreadPool,
}

impl Timed {
    pub(super) fn new(sample: Sample, timings: std::sync::Arc<Timings>) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let pool = pool.map_err(|e| engine(datafusion::common::exec_datafusion_err!("{e}")))?;
        Ok(Self {
            sample,
            timings,
            pool,
        })
    }
}

impl Probe for Timed {
    fn sample(&self, occurrence: u32) -> Option<RecordBatch> {
        self.sample.sample(occurrence)
    }

    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated> {
        let prepared = prepare(expr, rows.schema_ref())?;
        // The first evaluation warms up; it is also the one whose values count.
        let evaluated = self.pool.install(|| prepared.evaluate(rows))?;
        let mut fastest = f64::INFINITY;
        for _ in 0..RUNS {
            let start = Instant::now();
            drop(self.pool.install(|| prepared.evaluate(rows)));
            fastest = fastest.min(start.elapsed().as_nanos() as f64);
        }
        if let (Some(function), n @ 1..) = (our_function(expr), rows.num_rows()) {
            let read = expr.column_refs();
            let columns = read.iter().filter_map(|c| {
                let hidden = c.name == forebay_udfs::row::ROW_COLUMN;
                rows.column_by_name(&c.name).filter(|_| !hidden).cloned()
            });
            let columns: Vec<ArrayRef> = columns.collect();
            let written = bytes_of(std::slice::from_ref(&evaluated.values));
            self.timings.note(
                &function,
                Measured {
                    read: bytes_of(&columns) as f64 / n as f64,
                    written: written as f64 / n as f64,
                    ps: fastest * 1000.0 / n as f64,
                },
            );
        }
        Some(evaluated)
    }
}

/// The one function of ours that an expression calls.
fn our_function(expr: &Expr) -> Option<String> {
    let mut found = Vec::new();
    let visited = expr.apply(|e| {
        if let Expr::ScalarFunction(call) = e
            && forebay_udfs::facts_of(call.func.name()).is_some()
        {
            found.push(call.func.name().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match (visited, found.as_slice()) {
        (Ok(_), [one]) => Some(one.clone()),
        _ => None,
    }
}

/// Bytes of columns.
pub(super) fn bytes_of(columns: &[ArrayRef]) -> usize {
    let sizes = columns.iter();
    sizes
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0))
        .sum()
}
