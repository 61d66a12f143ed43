//! Assembly of batches from the computed rows of a run.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef};
use forebay_planner::batches;
use forebay_planner::clauses::{Clauses, EqualSteps, OnError, Remainder};
use forebay_planner::pipeline::is_hidden;
use forebay_udfs::row::RowColumn;

use super::batch::Batch;
use super::budget::{Budget, Spent};
use super::counter::Counter;
use super::failure::{Failure, KEPT_FAILURES, RunStats};
use super::held::PendingRows;
use super::pack::Packing;
use super::pad::Padding;
use super::settle::{self, Made, reported, settle};
use super::trial::FunctionTrial;
use crate::dead_letters::FailedRow;
use crate::error::Result;
use crate::fragment::row_batch::{self, RowBatch, SlotError};
use crate::group_key::KeyColumns;
use crate::order::Snapshot;
use crate::record_batch::{batch_bytes, record_batch};
use crate::stream::accountant::PlannedBatch;
use crate::stream::assignment::RankAssignment;
use crate::stream::cursor::Cursor;
use crate::stream::group::GroupKey;
use crate::stream::token::StreamName;

/// Assembles the rows of a run into batches.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Schema of the rows, including the hidden columns.
    pub(super) whole: SchemaRef,
    schema: SchemaRef,
    pub(super) snapshot: Arc<Snapshot>,
    name: Arc<StreamName>,
    ranks: RankAssignment,
    on_error: OnError,
    keys: Option<KeyColumns>,
    packing: Option<Packing>,
    padding: Option<Padding>,
    /// Rows of planned batches that wait for their batch.
    pieces: PendingRows,
    /// Counts and groups rows in counted mode; unused if batches are planned.
    pub(super) counter: Counter,
    continuous: bool,
    /// The current epoch.
    epoch: Option<u64>,
    last: Option<(RowBatch, Option<Vec<u32>>)>,
    stats: RunStats,
    /// Maximum number of rows of an epoch that may fail; `None` without an error budget.
    pub(crate) budget: Option<Budget>,
    spent: Spent,
    /// Detects a host function that fails in every row.
    pub(crate) trial: FunctionTrial,
    /// Failed rows since the last call of [`take_letters`](Self::take_letters); `None` unless dead
    /// letters are written.
    letters: Option<Vec<FailedRow>>,
}

impl Tail {
    /// Creates a tail for rows of `schema`, whose hidden columns hold the group keys. If `replays`
    /// is true, dead letters are replayed, and each row is delivered by itself: rows are not packed
    /// together, repeated or replaced.
    pub(crate) fn new(
        schema: &Schema,
        snapshot: Arc<Snapshot>,
        name: Arc<StreamName>,
        mut ranks: RankAssignment,
        clauses: &Clauses,
        counter: Counter,
        replays: bool,
    ) -> Result<Self> {
        if replays {
            ranks.batch.remainder = Remainder::Keep;
        }
        let on_error = match clauses.options.on_error {
            // A replayed row must not be replaced by another row.
            OnError::Replace if replays => OnError::Skip,
            on_error => on_error,
        };
        let keys = KeyColumns::of(clauses, schema);
        let whole = match on_error {
            OnError::Null => nullable(schema),
            _ => Arc::new(schema.clone()),
        };
        let mut clauses = clauses.clone();
        if replays && clauses.pack.take().is_some() {
            clauses.pad.clear();
        }
        let schema = batches::schema(schema, &clauses)?;
        let packing = match &clauses.pack {
            Some(pack) => {
                let packs = Arc::clone(&schema);
                Some(Packing::try_new(pack, &clauses.pad, &whole, packs)?)
            }
            None => None,
        };
        let padding = if packing.is_some() || clauses.pad.is_empty() {
            None
        } else {
            Some(Padding::try_new(&clauses.pad, &whole)?)
        };
        Ok(Self {
            whole,
            schema,
            snapshot,
            name,
            ranks,
            on_error,
            keys,
            packing,
            padding,
            pieces: PendingRows::default(),
            counter,
            continuous: clauses.repeat.continuous,
            epoch: None,
            last: None,
            stats: RunStats::default(),
            budget: None,
            spent: Spent::default(),
            trial: FunctionTrial::default(),
            letters: clauses.options.dead_letters.as_ref().map(|_| Vec::new()),
        })
    }

    /// Returns the schema of the batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns statistics of the batches and failed rows so far.
    pub(crate) fn stats(&self) -> &RunStats {
        &self.stats
    }

    /// Returns the rows that failed since the previous call, if dead letters are written.
    pub(crate) fn take_letters(&mut self) -> Vec<FailedRow> {
        self.letters
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Begins epoch `epoch`. Unless batches cross epochs, a batch of an earlier epoch is not
    /// repeated in this epoch.
    pub(crate) fn begin(&mut self, epoch: u64) {
        self.counter.begin(epoch);
        if self.epoch.replace(epoch).is_some() && !self.continuous {
            self.last = None;
        }
    }

    /// Returns true if no batch was completed in counted mode in this epoch (or, if batches cross
    /// epochs, if no row was counted).
    pub(crate) const fn is_idle(&self) -> bool {
        self.counter.accountant.is_idle()
    }

    /// Returns true if TAKE is reached in this epoch, so the rest of the epoch need not be
    /// computed.
    pub(crate) const fn take_reached(&self) -> bool {
        self.counter.accountant.take_reached()
    }

    /// Adds the computed rows `pieces`, and appends to `out` the planned batches `batches`, which
    /// these rows complete.
    pub(crate) fn planned(
        &mut self,
        pieces: Vec<RowBatch>,
        batches: Vec<PlannedBatch>,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        pieces.into_iter().for_each(|rows| self.pieces.push(rows));
        for mut batch in batches {
            let repeated = self.last.as_ref().filter(|_| batch.repeats);
            let (members, own) = match repeated.cloned() {
                Some((rows, packs)) => {
                    batch.packs = packs;
                    (rows, 0)
                }
                None => {
                    let mut rows = self.pieces.pop(batch.rows, &self.whole)?;
                    let is_repeated = batch.repeats || batch.is_borrowed;
                    let own = if is_repeated { 0 } else { rows.len() };
                    self.keyed(&mut rows)?;
                    (rows, own)
                }
            };
            self.put_out(members, own, batch, out)?;
        }
        Ok(())
    }

    /// Fills up and settles the rows `members` of a batch, and appends the batch to `out`. Only the
    /// first `own` rows are new; the other rows repeat rows of earlier batches.
    pub(super) fn put_out(
        &mut self,
        mut members: RowBatch,
        own: usize,
        batch: PlannedBatch,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        let fills = self.ranks.batch.remainder == Remainder::Pad;
        if fills {
            members = self.padded(members, batch.packs.as_ref())?;
        }
        if fills || self.ranks.equal_steps == EqualSteps::Pad {
            self.last = Some((members.clone(), batch.packs.clone()));
        }
        let place = (batch.epoch, batch.step);
        let mut made = self.settled((members, batch.packs), own, place)?;
        if let Some(units) = batch.units {
            made.fill(units)?;
        }
        self.emit(made, place, batch.cursor, out)
    }

    /// Computes the group keys of `rows`; `None` if the pipeline has no group keys. A row whose key
    /// cannot be computed gets an error.
    pub(super) fn keyed(&self, rows: &mut RowBatch) -> Result<Option<Vec<GroupKey>>> {
        let Some(keys) = &self.keys else {
            return Ok(None);
        };
        let keyed = keys.keys(rows)?;
        for (row, error) in keyed.errors {
            rows.errors.entry(row).or_default().push(error);
        }
        Ok(Some(keyed.keys))
    }

    /// Fills a short batch up to the full batch size by repeating its rows. Packs are not repeated
    /// here.
    fn padded(&self, members: RowBatch, packs: Option<&Vec<u32>>) -> Result<RowBatch> {
        let n = members.len();
        match self.ranks.full() {
            Some(full) if packs.is_none() && n > 0 && n as u64 != full => {
                let around = (0..full).map(|i| i % n as u64);
                Ok(members.take(&UInt64Array::from_iter_values(around))?)
            }
            _ => Ok(members),
        }
    }

    /// Settles the failed rows of a batch. Only the first `own` rows are new; failures of the other
    /// rows were reported before.
    fn settled(
        &mut self,
        (mut members, packs): (RowBatch, Option<Vec<u32>>),
        own: usize,
        (epoch, step): (u64, u64),
    ) -> Result<Made> {
        if let Some(padding) = &self.padding {
            padding.check(&mut members)?;
        }
        self.spent.see(epoch, own as u64);
        let ids = members.row_ids()?;
        let failure = |row: usize, error: &SlotError| {
            let file = ids.file.value(row);
            let column = error.column.map(|c| self.whole.field(c).name().clone());
            Failure {
                location: self.snapshot.location(file).to_owned(),
                file: self.snapshot.path(file).to_owned(),
                row: ids.row.value(row),
                column: column.filter(|name| !is_hidden(name)),
                operator: error.operator.clone(),
                cause: error.cause.clone(),
            }
        };
        self.trial.see(own, &members.errors, failure)?;
        let Some((&row, errors)) = members.errors.first_key_value() else {
            return Ok(Made::whole(members, packs, own));
        };
        let first = failure(row, reported(errors));
        let mut failures = Vec::with_capacity(members.errors.len());
        for (&row, errors) in members.errors.range(..own) {
            let failure = failure(row, reported(errors));
            if let Some(letters) = &mut self.letters {
                letters.push(FailedRow {
                    epoch,
                    step,
                    pass: ids.pass.value(row),
                    file: ids.file.value(row),
                    child: ids.child.value(row),
                    failure: failure.clone(),
                    outcome: settle::outcome(self.on_error, errors),
                });
            }
            if self.on_error != OnError::Fail
                && let Some(budget) = &self.budget
            {
                self.spent.fail(budget, &failure)?;
            }
            failures.push(failure);
            if self.on_error == OnError::Fail {
                break;
            }
        }
        let picks = settle(self.on_error, &mut members, own, &first, &mut self.stats)?;
        let room = KEPT_FAILURES.saturating_sub(self.stats.failures.len());
        self.stats.failures.extend(failures.into_iter().take(room));
        Made::settled(&members, &picks, packs, own, first)
    }

    /// Appends the settled batch `made` to `out`, and adds it to the statistics.
    fn emit(
        &mut self,
        made: Made,
        (epoch, step): (u64, u64),
        cursor: Arc<Cursor>,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        let Made {
            members,
            packs,
            padded,
            ..
        } = made;
        let rows = RowColumn::try_from_array(&members.rows)?;
        let batch = self.record(members.columns, members.rows.len(), packs)?;
        self.stats.rows += batch.num_rows() as u64;
        self.stats.batches += 1;
        self.stats.bytes += batch_bytes(&batch);
        out.push(Batch {
            epoch,
            step,
            batch,
            rows,
            padded,
            snapshot: Arc::clone(&self.snapshot),
            name: Arc::clone(&self.name),
            cursor,
        });
        Ok(())
    }

    fn record(
        &self,
        mut columns: Vec<ArrayRef>,
        rows: usize,
        packs: Option<Vec<u32>>,
    ) -> Result<RecordBatch> {
        // The hidden columns come last, so they are cut off.
        let fields = self.whole.fields().iter();
        columns.truncate(fields.filter(|field| !is_hidden(field.name())).count());
        if let Some(packing) = &self.packing {
            return packing.pack(&columns, &packs.unwrap_or_default());
        }
        if let Some(padding) = &self.padding {
            columns = padding.pad(columns)?;
        }
        Ok(record_batch(Arc::clone(&self.schema), columns, rows)?)
    }
}

fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(row_batch::nullable);
    let metadata = schema.metadata().clone();
    Arc::new(Schema::new_with_metadata(
        fields.collect::<Vec<_>>(),
        metadata,
    ))
}
