//! Measures two costs of rows of any type: evaluating a DataFusion operator over rows, and copying
//! rows from one batch to another (moving).

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt32Array, UInt64Array,
};
use arrow::compute::filter_record_batch;
use datafusion::common::internal_datafusion_err;
use datafusion::logical_expr::{Expr, col, lit};
use forebay_runtime::run::prepare;
use forebay_udfs::row::{ROW_COLUMN, RowColumn};

use crate::error::{Result, engine};

/// Number of measurements. The fastest measurement is used, since other work on the machine can
/// only slow a measurement down.
const RUNS: usize = 20;
/// Number of rows in the batch of small values that is moved.
const ROWS: usize = 8192;
/// Size, in bytes, of a value in the batch of large values that is moved. [`PAYLOADS`] is the
/// number of values in this batch.
const PAYLOAD: usize = 64 << 10;
const PAYLOADS: usize = 128;

/// Costs of moving rows and of evaluating operators over rows, in picoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moving {
    /// Cost of moving one byte of a column.
    pub(super) copy: u64,
    /// Cost of moving one row, apart from the cost of its bytes.
    pub(super) row: u64,
    /// Cost of evaluating one DataFusion operator over one row.
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

/// Returns the hidden column that identifies the rows of a batch, for `rows` rows.
fn hidden(rows: usize) -> datafusion::common::Result<ArrayRef> {
    let longs = || UInt64Array::from_iter_values(0..rows as u64);
    let shorts = || UInt32Array::from_iter_values(0..rows as u32);
    let rows = RowColumn {
        position: longs(),
        file: shorts(),
        row: longs(),
        child: shorts(),
        hash: longs(),
        pass: longs(),
    };
    rows.to_array()
}

/// Returns the time of a filter per passing row, in picoseconds. Seven of eight rows pass the
/// filter. (A filter that all rows pass would move no rows.)
fn filtering(rows: &RecordBatch) -> Result<f64> {
    let mask: BooleanArray = (0..rows.num_rows()).map(|row| Some(row % 8 > 0)).collect();
    let ps =
        fastest(|| filter_record_batch(rows, &mask).map(drop)).map_err(|e| engine(e.into()))?;
    Ok(ps / mask.true_count() as f64)
}

/// Returns the time that one DataFusion operator takes per row, in picoseconds.
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

/// Returns the time of the fastest of [`RUNS`] calls of `run`, in picoseconds.
fn fastest<E>(mut run: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let mut fastest = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        fastest = fastest.min(start.elapsed().as_nanos() as f64 * 1000.0);
    }
    Ok(fastest)
}
