//! What computing and moving rows costs, whatever they hold.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt32Array, UInt64Array,
};
use arrow::compute::filter_record_batch;
use datafusion::common::internal_datafusion_err;
use datafusion::logical_expr::{Expr, col, lit};
use forebay_runtime::engine::prepare;
use forebay_udfs::row::{ROW_COLUMN, Rows};

use crate::error::{Result, engine};

/// Runs of which the fastest counts: others were disturbed.
const RUNS: usize = 20;
/// Rows that are moved at once.
const ROWS: usize = 8192;
/// Bytes of a large value, and how many are moved at once.
const PAYLOAD: usize = 64 << 10;
const PAYLOADS: usize = 128;

/// What computing and moving rows costs, in picoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moving {
    /// A byte of a column.
    pub(super) copy: u64,
    /// A row.
    pub(super) row: u64,
    /// An operator of DataFusion over a row.
    pub(super) expression: u64,
}

impl Moving {
    pub(super) fn measured() -> Result<Self> {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
        let narrow = RecordBatch::try_from_iter([
            ("id", numbers),
            (ROW_COLUMN, hidden(ROWS).map_err(engine)?),
        ]);
        let narrow = narrow.map_err(|e| engine(e.into()))?;
        let payload = vec![1_u8; PAYLOAD];
        let values: ArrayRef = Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(
            &payload, PAYLOADS,
        )));
        let wide = RecordBatch::try_from_iter([("payload", values)]);
        let wide = wide.map_err(|e| engine(e.into()))?;
        Ok(Self {
            copy: (filtering(&wide)? / PAYLOAD as f64) as u64,
            row: filtering(&narrow)? as u64,
            expression: computing(&narrow)? as u64,
        })
    }
}

/// The hidden column of some rows.
fn hidden(rows: usize) -> datafusion::common::Result<ArrayRef> {
    let longs = || UInt64Array::from_iter_values(0..rows as u64);
    let shorts = || UInt32Array::from_iter_values(0..rows as u32);
    let rows = Rows {
        position: longs(),
        file: shorts(),
        row: longs(),
        child: shorts(),
        hash: longs(),
        pass: longs(),
    };
    rows.to_array()
}

/// Picoseconds for a row that a filter keeps, of which it keeps most: where it keeps all, it moves none.
fn filtering(rows: &RecordBatch) -> Result<f64> {
    let mask: BooleanArray = (0..rows.num_rows()).map(|row| Some(row % 8 > 0)).collect();
    let ps =
        fastest(|| filter_record_batch(rows, &mask).map(drop)).map_err(|e| engine(e.into()))?;
    Ok(ps / mask.true_count() as f64)
}

/// Picoseconds for an operator over a row.
fn computing(rows: &RecordBatch) -> Result<f64> {
    const DIVISORS: [i64; 8] = [3, 5, 7, 11, 13, 17, 19, 23];
    let terms = DIVISORS.map(|divisor| col("id") % lit(divisor));
    let operators = 2 * terms.len() - 1;
    let sum = terms.into_iter().reduce(|a: Expr, b| a + b);
    let prepared = sum.and_then(|sum| prepare(&sum, rows.schema_ref()));
    let prepared = prepared.ok_or_else(|| engine(internal_datafusion_err!("no sum of numbers")))?;
    let evaluate = || prepared.evaluate(rows).map(drop).ok_or(());
    let ps = fastest(evaluate).map_err(|()| engine(internal_datafusion_err!("no sum")))?;
    Ok(ps / (operators * rows.num_rows()) as f64)
}

/// Picoseconds of the fastest of some runs.
fn fastest<E>(mut run: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        fastest = fastest.min(start.elapsed().as_nanos() as f64 * 1000.0);
    }
    Ok(fastest)
}
