//! The tail of a pipeline: what crosses segments. It cuts rows into planned batches and settles
//! failed rows by the pipeline's policy, in stream order.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{concat, nullif};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_err;
use forebay_planner::clauses::{OnError, Remainder};
use forebay_udfs::row::Rows;

use crate::deal::Deal;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowBatch, RowErrors, SlotError};
use crate::snapshot::Snapshot;

/// Failed rows that are kept with their causes; all are counted.
pub const KEPT_FAILURES: usize = 100;

/// A failed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where the source is.
    pub location: String,
    /// The file, relative to the source.
    pub file: String,
    /// Row in the file, from 0.
    pub row: u64,
    /// The output column; `None` where a predicate failed.
    pub column: Option<String>,
    /// The operator that failed.
    pub operator: String,
    /// What went wrong.
    pub cause: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            location,
            file,
            row,
            column,
            operator,
            cause,
        } = self;
        match location
            .strip_suffix(file.as_str())
            .is_some_and(|p| p.is_empty() || p.ends_with('/'))
        {
            true => write!(f, "{location}, row {row}: {operator}")?,
            false => write!(
                f,
                "{}/{file}, row {row}: {operator}",
                location.trim_end_matches('/')
            )?,
        }
        match column {
            Some(column) => write!(f, " for column \"{column}\"")?,
            None => write!(f, " in a filter")?,
        }
        write!(f, ": {cause}")
    }
}

/// What became of failed rows, and how much was put out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Rows put out.
    pub rows: u64,
    /// Batches put out.
    pub batches: u64,
    /// Bytes of the batches put out.
    pub bytes: u64,
    /// Failed rows left out.
    pub skipped: u64,
    /// Failed rows for which another row stood in.
    pub replaced: u64,
    /// Failed rows kept with nulls.
    pub nulled: u64,
    /// The first failures, in stream order.
    pub failures: Vec<Failure>,
}

/// A batch of a run.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch (over all epochs under `REPEAT .. CONTINUOUS`), from 0.
    pub step: u64,
    /// The columns.
    pub batch: RecordBatch,
    /// The identities of its rows.
    pub rows: Rows,
    snapshot: Arc<Snapshot>,
}

impl Batch {
    /// File (relative to its source), row in the file, and child index of each row.
    pub fn keys(&self) -> impl Iterator<Item = (&str, u64, u32)> {
        (0..self.rows.row.len()).map(|i| {
            let file = self.snapshot.path(self.rows.file.value(i));
            (file, self.rows.row.value(i), self.rows.child.value(i))
        })
    }
}

/// How rows reach the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// Only this rank's rows come, of so many rows of the span over all ranks.
    Planned(u64),
    /// Every row of the query comes; the tail counts them, skips and takes. One rank only.
    Counted {
        /// Rows to drop at the start of the span.
        skip: u64,
        /// Rows to keep after that.
        take: u64,
    },
}

/// Cuts the rows of one span (an epoch; the whole run under `CONTINUOUS`) into batches.
#[derive(Debug)]
pub struct Tail {
    schema: SchemaRef,
    snapshot: Arc<Snapshot>,
    deal: Deal,
    on_error: OnError,
    feed: Feed,
    epoch: u64,
    step: u64,
    pending: Vec<RowBatch>,
    pending_rows: u64,
    last: Option<RowBatch>,
    stats: RunStats,
}

impl Tail {
    /// A tail whose batches have `schema`.
    pub fn new(schema: &Schema, snapshot: Arc<Snapshot>, deal: Deal, on_error: OnError) -> Self {
        let schema = match on_error {
            OnError::Null => nullable(schema),
            _ => Arc::new(schema.clone()),
        };
        Self {
            schema,
            snapshot,
            deal,
            on_error,
            feed: Feed::Planned(0),
            epoch: 0,
            step: 0,
            pending: Vec::new(),
            pending_rows: 0,
            last: None,
            stats: RunStats::default(),
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What was put out so far.
    pub fn stats(&self) -> &RunStats {
        &self.stats
    }

    /// Starts a span.
    pub fn begin(&mut self, epoch: u64, feed: Feed) {
        self.epoch = epoch;
        self.step = 0;
        self.feed = feed;
        self.last = None;
    }

    /// Tells the epoch that rows now come from, within a span of several.
    pub fn enter_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Starts the next epoch's SKIP and TAKE within a span of several.
    pub fn restart_counting(&mut self, skip: u64, take: u64) {
        self.feed = Feed::Counted { skip, take };
    }

    /// Whether TAKE has all its rows, so that the rest of the epoch need not be computed.
    pub fn is_satisfied(&self) -> bool {
        matches!(self.feed, Feed::Counted { take: 0, .. })
    }

    /// Adds rows, which come in stream order, and gives the batches that they complete.
    pub fn push(&mut self, mut rows: RowBatch, out: &mut Vec<Batch>) -> Result<()> {
        if let Feed::Counted { skip, take } = &mut self.feed {
            let dropped = (*skip).min(rows.len() as u64);
            let kept = (*take).min(rows.len() as u64 - dropped);
            *skip -= dropped;
            *take -= kept;
            if dropped > 0 || kept < rows.len() as u64 {
                rows = rows.slice(dropped as usize, kept as usize);
            }
        }
        while !rows.is_empty() {
            let Some(expected) = self.expected() else {
                return Ok(internal_err!("more rows came than were planned")?);
            };
            if expected == 0 {
                self.emit(out)?;
                continue;
            }
            let n = (expected - self.pending_rows).min(rows.len() as u64) as usize;
            self.pending.push(rows.slice(0, n));
            self.pending_rows += n as u64;
            rows = rows.slice(n, rows.len() - n);
            if self.pending_rows == expected {
                self.emit(out)?;
            }
        }
        Ok(())
    }

    /// Rows of the batch being filled; `None` where no more are planned.
    fn expected(&self) -> Option<u64> {
        match self.feed {
            Feed::Counted { .. } => Some(self.deal.rows),
            Feed::Planned(total) => (self.step < self.deal.steps(total)).then(|| {
                let range = self.deal.range(self.step, total);
                range.end - range.start
            }),
        }
    }

    /// Ends the span: the last, perhaps short, batches.
    pub fn finish(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        match self.feed {
            Feed::Counted { .. } if self.pending_rows > 0 => match self.deal.remainder {
                Remainder::Drop => {
                    self.pending.clear();
                    self.pending_rows = 0;
                }
                Remainder::Keep | Remainder::Pad => self.emit(out)?,
            },
            Feed::Counted { .. } => {}
            Feed::Planned(_) => {
                while let Some(expected) = self.expected() {
                    if expected != self.pending_rows {
                        return Ok(internal_err!(
                            "a batch was planned with {expected} rows and {} came",
                            self.pending_rows
                        )?);
                    }
                    self.emit(out)?;
                }
            }
        }
        Ok(())
    }

    fn emit(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        let pieces = std::mem::take(&mut self.pending);
        self.pending_rows = 0;
        let mut members = self.joined(&pieces)?;
        if self.deal.remainder == Remainder::Pad {
            members = self.padded(members)?;
        }
        let (batch, rows) = self.settle(&members)?;
        self.stats.rows += batch.num_rows() as u64;
        self.stats.batches += 1;
        self.stats.bytes += batch
            .columns()
            .iter()
            .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0) as u64)
            .sum::<u64>();
        let snapshot = Arc::clone(&self.snapshot);
        out.push(Batch {
            epoch: self.epoch,
            step: self.step,
            batch,
            rows,
            snapshot,
        });
        self.step += 1;
        Ok(())
    }

    fn joined(&self, pieces: &[RowBatch]) -> Result<RowBatch> {
        if let [only] = pieces {
            return Ok(only.clone());
        }
        let join = |column: &dyn Fn(&RowBatch) -> ArrayRef, empty: ArrayRef| -> Result<ArrayRef> {
            let arrays: Vec<ArrayRef> = pieces.iter().map(column).collect();
            let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
            if arrays.is_empty() {
                Ok(empty)
            } else {
                Ok(concat(&arrays).map_err(engine)?)
            }
        };
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for (i, field) in self.schema.fields().iter().enumerate() {
            let empty = arrow::array::new_empty_array(field.data_type());
            columns.push(join(&|b| Arc::clone(&b.columns[i]), empty)?);
        }
        let no_rows = self.snapshot.row_ids(&[], 0).to_array()?;
        let rows = join(&|b| Arc::clone(&b.rows), no_rows)?;
        let (mut errors, mut offset) = (RowErrors::new(), 0);
        for piece in pieces {
            errors.extend(
                piece
                    .errors
                    .iter()
                    .map(|(row, e)| (row + offset, e.clone())),
            );
            offset += piece.len();
        }
        Ok(RowBatch {
            columns,
            rows,
            errors,
        })
    }

    /// Fills a short batch by repeating its rows, or those of the batch before it where it has none.
    fn padded(&mut self, members: RowBatch) -> Result<RowBatch> {
        let full = self.deal.full() as usize;
        let filled = match (&self.last, members.len()) {
            (_, n) if n == full => members,
            (Some(last), 0) => last.clone(),
            (None, 0) => members,
            (_, n) => {
                let around = UInt64Array::from_iter_values((0..full).map(|i| (i % n) as u64));
                members.take(&around)?
            }
        };
        self.last = Some(filled.clone());
        Ok(filled)
    }

    /// Settles the failed rows of a batch.
    fn settle(&mut self, members: &RowBatch) -> Result<(RecordBatch, Rows)> {
        if members.errors.is_empty() {
            return self.record(members.columns.clone(), &members.rows);
        }
        let ids = members.row_ids()?;
        for (&row, errors) in &members.errors {
            let failure = self.failure(&ids, row, reported(errors));
            if self.on_error == OnError::Fail {
                return Err(Error::Row(Box::new(failure)));
            }
            if self.stats.failures.len() < KEPT_FAILURES {
                self.stats.failures.push(failure);
            }
        }
        let failed = members.errors.len() as u64;
        match self.on_error {
            OnError::Fail => unreachable_policy(),
            OnError::Skip => {
                self.stats.skipped += failed;
                let good = (0..members.len()).filter(|row| !members.errors.contains_key(row));
                self.taken(members, good.map(|row| row as u64).collect())
            }
            OnError::Replace => {
                let n = members.len();
                let good = |row: usize| !members.errors.contains_key(&row);
                let mut picks = Vec::with_capacity(n);
                for row in 0..n {
                    // The next good row of the batch, from its start again where none follows.
                    match (row..n).chain(0..row).find(|&r| good(r)) {
                        Some(stand_in) => picks.push(stand_in as u64),
                        None => {
                            let mut failure = self.failure(&ids, 0, reported(&members.errors[&0]));
                            failure.cause += &format!(
                                "; every one of the batch's {n} rows failed, so none can stand in"
                            );
                            return Err(Error::Row(Box::new(failure)));
                        }
                    }
                }
                self.stats.replaced += failed;
                self.taken(members, picks)
            }
            OnError::Null => {
                let in_doubt = |errors: &[SlotError]| errors.iter().any(|e| e.column.is_none());
                let doubts = members.errors.values().filter(|e| in_doubt(e)).count() as u64;
                self.stats.skipped += doubts;
                self.stats.nulled += failed - doubts;
                let mut nulled = members.clone();
                for (index, column) in nulled.columns.iter_mut().enumerate() {
                    let failed = |row: usize| {
                        let here = |e: &SlotError| e.column == Some(index);
                        members
                            .errors
                            .get(&row)
                            .is_some_and(|errors| errors.iter().any(here))
                    };
                    let mask: BooleanArray = (0..members.len()).map(|r| Some(failed(r))).collect();
                    if mask.true_count() > 0 {
                        *column = nullif(column, &mask).map_err(engine)?;
                    }
                }
                // A predicate that failed is null, and a null predicate keeps no row.
                let kept = (0..members.len())
                    .filter(|row| !members.errors.get(row).is_some_and(|e| in_doubt(e)));
                self.taken(&nulled, kept.map(|row| row as u64).collect())
            }
        }
    }

    fn taken(&self, members: &RowBatch, rows: Vec<u64>) -> Result<(RecordBatch, Rows)> {
        let taken = members.take(&UInt64Array::from(rows))?;
        self.record(taken.columns, &taken.rows)
    }

    fn record(&self, columns: Vec<ArrayRef>, rows: &ArrayRef) -> Result<(RecordBatch, Rows)> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options).map_err(engine)?;
        Ok((batch, Rows::try_from_array(rows)?))
    }

    fn failure(&self, ids: &Rows, row: usize, error: &SlotError) -> Failure {
        let file = ids.file.value(row);
        Failure {
            location: self.snapshot.location(file).to_owned(),
            file: self.snapshot.path(file).to_owned(),
            row: ids.row.value(row),
            column: error.column.map(|c| self.schema.field(c).name().clone()),
            operator: error.operator.clone(),
            cause: error.cause.clone(),
        }
    }
}

/// The error of a row that stands for all of them: that of a predicate, else that of the first column.
/// It does not depend on the order in which a plan computes them.
fn reported(errors: &[SlotError]) -> &SlotError {
    errors.iter().min_by_key(|e| e.column).unwrap_or(&errors[0])
}

fn unreachable_policy<T>() -> Result<T> {
    Ok(internal_err!("the policy 'fail' went past a failure")?)
}

fn engine(error: arrow::error::ArrowError) -> Error {
    Error::Engine(error.into())
}

fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .map(|f| f.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new_with_metadata(
        fields.collect::<Vec<_>>(),
        schema.metadata().clone(),
    ))
}
