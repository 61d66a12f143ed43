//! Runs a blocking reader on its own thread, a few batches ahead of its async consumer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::error::SourceError;
use super::input::with_store_failures;
#[cfg(doc)]
use super::rows::Scan;
use super::rows::StoredRows;
use crate::task::{self, panic_message};

/// Target size in bytes of the batches that a reader emits. A stream can have three batches in
/// memory: one with the consumer, one in the channel, and one with the reader.
pub(crate) const BATCH_BYTES: u64 = 4 << 20;

/// Maximum number of rows in a batch, even if the rows take few bytes.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Returns the number of rows for a batch of about [`BATCH_BYTES`], if `rows` rows take `bytes`
/// bytes in total.
pub(crate) fn rows_per_batch(rows: u64, bytes: u64) -> usize {
    let each = bytes.checked_div(rows).unwrap_or(0).max(1);
    usize::try_from(BATCH_BYTES / each)
        .unwrap_or(BATCH_ROWS)
        .clamp(1, BATCH_ROWS)
}

/// The sender by which a blocking reader emits its batches.
#[derive(Debug)]
pub(crate) struct Emit<'a> {
    sender: &'a mpsc::Sender<Result<StoredRows>>,
    /// The predicate of the rows to emit; see [`Scan::keep`]. The thread that has read the rows evaluates
    /// it, beside the threads of the job, which saves waking another thread for each batch.
    keep: Option<Arc<dyn PhysicalExpr>>,
}

impl Emit<'_> {
    /// Sends a batch, after waiting until the channel has room. Returns false when the consumer
    /// hung up or the batch cannot be filtered; the reader must then stop.
    #[must_use]
    pub(crate) fn send(&self, rows: StoredRows) -> bool {
        if self.sender.is_closed() {
            return false;
        }
        let rows = match &self.keep {
            Some(keep) => rows.kept(keep),
            None => Ok(rows),
        };
        match rows {
            Ok(rows) => rows.numbers.is_empty() || self.sender.blocking_send(Ok(rows)).is_ok(),
            Err(error) => {
                drop(self.sender.blocking_send(Err(error)));
                false
            }
        }
    }
}

/// Returns the stream of the batches that `read` emits. `read` starts on a thread for blocking work
/// when the stream is first polled. Rows for which `keep` is not true are dropped. Once the stream is dropped, [`Emit::send`] tells `read` to
/// stop. A panic of `read`, for example over damaged bytes, becomes an error that names the file
/// `path`.
pub(crate) fn blocking_stream<F>(
    path: PathBuf,
    format: &'static str,
    keep: Option<Arc<dyn PhysicalExpr>>,
    read: F,
) -> BoxStream<'static, Result<StoredRows>>
where
    F: FnOnce(&Emit<'_>) -> Result<()> + Send + 'static,
{
    task::blocking_stream("reading", move |sender| {
        let emit = Emit { sender, keep };
        if let Err(error) = guarded(&path, format, || read(&emit)) {
            // If the consumer hung up, the error is not needed.
            drop(sender.blocking_send(Err(error)));
        }
    })
}

/// Runs `work`, and turns a panic into an error that names the file `path`. If a store could not be
/// read, its error is returned, and not that of the parser above.
pub(crate) fn guarded<T>(
    path: &std::path::Path,
    format: &'static str,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let caught = || catch_unwind(AssertUnwindSafe(work));
    with_store_failures(|| {
        caught().unwrap_or_else(|panic| {
            let cause = format!(
                "its decoder stopped with a panic: {}",
                panic_message(&*panic)
            );
            Err(SourceError::damaged(path, format, cause).into())
        })
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, RecordBatch};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
    use futures::StreamExt;

    use super::*;

    fn rows(n: i32) -> StoredRows {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..n));
        StoredRows {
            batch: RecordBatch::try_from_iter([("a", column)]).unwrap(),
            numbers: (0..n as u64).collect(),
        }
    }

    #[tokio::test]
    async fn batches_come_in_order_and_then_the_error() {
        let mut stream = blocking_stream("f".into(), "CSV", None, |emit| {
            for n in 0..4 {
                assert!(emit.send(rows(n)));
            }
            panic!("bad bytes");
        });
        for n in 1..4 {
            assert_eq!(stream.next().await.unwrap().unwrap().numbers.len(), n);
        }
        let error = stream.next().await.unwrap().unwrap_err().to_string();
        assert!(error.contains("'f' is not a sound CSV file"), "{error}");
        assert!(error.contains("bad bytes"), "{error}");
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn rows_that_a_filter_drops_are_not_sent() {
        let number = || -> Arc<dyn PhysicalExpr> { Arc::new(Column::new("a", 0)) };
        let binary = |left, op, right| -> Arc<dyn PhysicalExpr> {
            Arc::new(BinaryExpr::new(left, op, right))
        };
        let above_1 = binary(number(), Operator::Gt, lit(1_i32));
        // Fails in row 0 of each batch.
        let fails = binary(
            binary(lit(6_i32), Operator::Divide, number()),
            Operator::Gt,
            lit(2_i32),
        );
        for (keep, expected) in [
            (above_1, vec![vec![2], vec![2, 3]]),
            (fails, vec![vec![0, 1], vec![0, 1, 2], vec![0, 1, 2, 3]]),
        ] {
            let stream = blocking_stream("f".into(), "CSV", Some(keep), |emit| {
                for n in 2..5 {
                    assert!(emit.send(rows(n)));
                }
                Ok(())
            });
            let sent: Vec<Vec<u64>> = stream.map(|rows| rows.unwrap().numbers).collect().await;
            assert_eq!(sent, expected);
        }
    }

    #[tokio::test]
    async fn dropping_the_stream_stops_the_reader() {
        let (done, stopped) = std::sync::mpsc::channel();
        // Drops all rows but those of the first batch.
        let keep: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(
            Arc::new(Column::new("a", 0)),
            Operator::Gt,
            lit(0_i32),
        ));
        let mut stream = blocking_stream("f".into(), "CSV", Some(keep), move |emit| {
            assert!(emit.send(rows(2)));
            while emit.send(rows(1)) {}
            done.send(()).unwrap();
            Ok(())
        });
        stream.next().await.unwrap().unwrap();
        drop(stream);
        stopped
            .recv_timeout(std::time::Duration::from_secs(10))
            .unwrap();
    }

    #[test]
    fn batches_are_bounded_by_bytes_and_rows() {
        assert_eq!(rows_per_batch(1000, 1000 * 100_000), 41);
        assert_eq!(rows_per_batch(1000, 8000), BATCH_ROWS);
        assert_eq!(rows_per_batch(1, u64::MAX), 1);
        assert_eq!(rows_per_batch(0, 0), BATCH_ROWS);
    }
}
