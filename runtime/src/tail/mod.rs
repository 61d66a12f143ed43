//! The tail of a pipeline: what crosses segments. It puts rows together into batches and settles
//! failed rows by the pipeline's policy, in stream order.

mod failure;
mod held;
mod pack;
mod pad;
mod settle;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_err;
use forebay_planner::clauses::{Clauses, EqualSteps, OnError, Remainder};
use forebay_planner::pipeline::is_hidden;
use forebay_udfs::row::Rows;

pub use self::failure::{Failure, KEPT_FAILURES, RunStats};
use self::held::{Held, Pieces};
use self::pack::Packing;
use self::pad::Padding;
use self::settle::{engine, reported, settle};
use crate::cursor::{Carried, Cursor};
use crate::deal::Deal;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::group::{Carry, Group, Grouper, Grouping};
use crate::keys::KeyColumns;
use crate::origin::Origin;
use crate::snapshot::Snapshot;
use crate::token::{StreamName, Token};

/// A batch of a run.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch (over all epochs under `REPEAT .. CONTINUOUS`), from 0.
    pub step: u64,
    /// The columns.
    pub batch: RecordBatch,
    /// The identities of its rows; of packs, those of the rows in them.
    pub rows: Rows,
    snapshot: Arc<Snapshot>,
    name: Arc<StreamName>,
    cursor: Arc<Cursor>,
}

impl Batch {
    /// File (relative to its source), row in the file, and child index of each row.
    pub fn keys(&self) -> impl Iterator<Item = (&str, u64, u32)> {
        (0..self.rows.row.len()).map(|i| {
            let file = self.snapshot.path(self.rows.file.value(i));
            (file, self.rows.row.value(i), self.rows.child.value(i))
        })
    }

    /// What a run has to be given to go on behind this batch.
    pub fn token(&self) -> Token {
        Token::new(&self.name, &self.cursor)
    }
}

/// A batch of this rank, as it was planned.
#[derive(Debug)]
pub(crate) struct PlannedBatch {
    pub(crate) epoch: u64,
    /// Step in the span.
    pub(crate) step: u64,
    /// Its rows: the next ones.
    pub(crate) rows: usize,
    /// Rows of each pack, where rows are packed.
    pub(crate) packs: Option<Vec<u32>>,
    /// Whether the batch before it comes again instead.
    pub(crate) repeats: bool,
    /// Where the stream stands behind it.
    pub(crate) cursor: Arc<Cursor>,
}

/// Where counted rows go on: what is left of SKIP and TAKE, and what was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    epoch: u64,
    rows: u64,
    step: u64,
    batches: u64,
}

/// Puts the rows of a run together into batches.
#[derive(Debug)]
pub(crate) struct Tail {
    /// With the hidden columns.
    whole: SchemaRef,
    schema: SchemaRef,
    snapshot: Arc<Snapshot>,
    name: Arc<StreamName>,
    deal: Deal,
    on_error: OnError,
    keys: Option<KeyColumns>,
    packing: Option<Packing>,
    padding: Option<Padding>,
    grouping: Grouping,
    skip: u64,
    take: u64,
    pieces: Pieces,
    grouper: Grouper<Held>,
    count: Count,
    /// The last row that came, and how many its stored row has given.
    last_row: Option<(u64, u32)>,
    /// Where the stream stands behind the last row that came.
    at: Option<Cursor>,
    /// Rows that were carried to here, until their groups come.
    restored: Vec<RowBatch>,
    last: Option<(RowBatch, Option<Vec<u32>>)>,
    stats: RunStats,
}

impl Tail {
    /// A tail for rows of `schema`, with what decides groups in hidden columns.
    pub(crate) fn new(
        schema: &Schema,
        snapshot: Arc<Snapshot>,
        name: Arc<StreamName>,
        deal: Deal,
        clauses: &Clauses,
    ) -> Result<Self> {
        let on_error = clauses.options.on_error;
        let keys = KeyColumns::of(clauses, schema);
        let whole = match on_error {
            OnError::Null => nullable(schema),
            _ => Arc::new(schema.clone()),
        };
        let shown = whole.fields().iter().filter(|f| !is_hidden(f.name()));
        let shown: Vec<_> = shown.map(Arc::clone).collect();
        let mut schema = Arc::new(Schema::new_with_metadata(shown, whole.metadata().clone()));
        let packing = match &clauses.pack {
            None => None,
            Some(pack) => {
                let packing = Packing::try_new(pack, &clauses.pad, &schema)?;
                schema = Arc::clone(packing.schema());
                Some(packing)
            }
        };
        let padding = match packing.is_some() || clauses.pad.is_empty() {
            true => None,
            false => {
                let padding = Padding::try_new(&clauses.pad, &schema)?;
                schema = Arc::clone(padding.schema());
                Some(padding)
            }
        };
        let grouping = Grouping::of(clauses);
        Ok(Self {
            whole,
            schema,
            snapshot,
            name,
            deal,
            on_error,
            keys,
            packing,
            padding,
            grouper: Grouper::new(grouping.clone()),
            grouping,
            skip: clauses.skip,
            take: clauses.take.unwrap_or(u64::MAX),
            pieces: Pieces::default(),
            count: Count::default(),
            last_row: None,
            at: None,
            restored: Vec::new(),
            last: None,
            stats: RunStats::default(),
        })
    }

    /// The schema of the batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What was put out so far.
    pub(crate) fn stats(&self) -> &RunStats {
        &self.stats
    }

    /// Counts on from where a run left off.
    pub(crate) fn resume(&mut self, cursor: &Cursor) {
        self.count = Count {
            epoch: cursor.epoch,
            rows: cursor.rows,
            step: cursor.step,
            batches: cursor.batches,
        };
        if let [arm] = cursor.arms.as_slice() {
            self.last_row = arm.row;
        }
    }

    /// Begins an epoch, whose batches begin with it unless they cross epochs.
    pub(crate) fn begin(&mut self, epoch: u64, continuous: bool) {
        if epoch == self.count.epoch {
            return;
        }
        let from = if continuous {
            self.count
        } else {
            Count::default()
        };
        self.count = Count {
            epoch,
            rows: 0,
            ..from
        };
        self.last_row = None;
        if !continuous {
            self.last = None;
        }
    }

    /// Whether TAKE has all its rows, so that the rest of the epoch need not be computed.
    pub(crate) fn is_satisfied(&self) -> bool {
        self.count.rows >= self.skip.saturating_add(self.take)
    }

    /// Adds rows of which it is planned what batches they make.
    pub(crate) fn planned(
        &mut self,
        rows: RowBatch,
        batches: Vec<PlannedBatch>,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        self.pieces.push(rows);
        for batch in batches {
            let (rows, packs) = match &self.last {
                Some(last) if batch.repeats => last.clone(),
                _ => (self.pieces.pop(batch.rows, &self.whole)?, batch.packs),
            };
            let mut members = self.with_key_errors(rows)?;
            if self.deal.batch.remainder == Remainder::Pad {
                members = self.padded(members, packs.as_ref())?;
            }
            if self.deal.batch.remainder == Remainder::Pad
                || self.deal.equal_steps == EqualSteps::Pad
            {
                self.last = Some((members.clone(), packs.clone()));
            }
            self.emit(members, packs, (batch.epoch, batch.step), batch.cursor, out)?;
        }
        Ok(())
    }

    /// Adds rows, which come in stream order, to be counted and grouped.
    pub(crate) fn counted(
        &mut self,
        mut rows: RowBatch,
        origin: &Arc<Origin>,
        flush: bool,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        // Rows behind the last one of TAKE come or do not come, as timing has it. They are no rows of the epoch,
        // so neither is a horizon behind it.
        if self.is_satisfied() {
            return Ok(());
        }
        let mut closed = Vec::new();
        if flush {
            self.grouper.flush(&mut closed);
            self.close_all(&mut closed, out)?;
        }
        let keys = match &self.keys {
            Some(keys) => {
                let keyed = keys.keys(&rows)?;
                for (row, error) in keyed.errors {
                    rows.errors.entry(row).or_default().push(error);
                }
                Some(keyed.keys)
            }
            None => None,
        };
        let ids = rows.row_ids()?;
        let piece = self.pieces.add(rows);
        for (row, &position) in ids.position.values().iter().enumerate() {
            if self.is_satisfied() {
                break;
            }
            let Some(carried) = origin.carried(&self.snapshot, position, 0) else {
                return Ok(internal_err!("a row came that was not asked for")?);
            };
            let given = match self.last_row {
                Some((stored, given)) if stored == carried.stored => given + 1,
                _ => 1,
            };
            self.last_row = Some((carried.stored, given));
            let carried = Carried {
                nth: given - 1,
                ..carried
            };
            self.count.rows += 1;
            if self.count.rows <= self.skip {
                continue;
            }
            let held = Held {
                piece,
                row: row as u32,
                carried,
            };
            let key = keys.as_ref().map(|keys| keys[row]).unwrap_or_default();
            self.grouper.push(held, key, &mut closed);
            if !closed.is_empty() {
                self.at = origin.behind(&self.snapshot, position, given);
                self.close_all(&mut closed, out)?;
            }
        }
        if let Some(&position) = ids.position.values().last()
            && let Some((_, given)) = self.last_row
        {
            self.at = origin.behind(&self.snapshot, position, given);
        }
        self.pieces.keep_only(&mut self.grouper)?;
        Ok(())
    }

    /// Takes rows in that were carried to where the run goes on; with the last of them come their groups.
    pub(crate) fn restored(
        &mut self,
        rows: RowBatch,
        groups: Option<Carry<(usize, Carried)>>,
        at: &Cursor,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        self.restored.push(rows);
        let Some(groups) = groups else {
            return Ok(());
        };
        let pieces = std::mem::take(&mut self.restored);
        let rows = held::joined(&pieces, &self.whole, &self.snapshot)?;
        if rows.len() != groups.rows().count() {
            return Err(Error::Config(
                "rows that the resume token carries are no longer there".to_owned(),
            ));
        }
        let keys = match &self.keys {
            Some(keys) => keys.keys(&rows)?.keys,
            None => vec![Default::default(); rows.len()],
        };
        let piece = self.pieces.add(rows);
        let held = groups.map(|&(at, carried)| {
            let row = at as u32;
            let held = Held {
                piece,
                row,
                carried,
            };
            Ok::<_, Error>((held, keys.get(at).copied().unwrap_or_default()))
        })?;
        self.grouper = Grouper::resume(self.grouping.clone(), &held);
        let mut ready = Vec::new();
        for group in held.ready {
            ready.push(Group {
                rows: group.rows.into_iter().map(|(row, _)| row).collect(),
                packs: group.packs,
            });
        }
        self.at = Some(at.clone());
        self.close_all(&mut ready, out)
    }

    /// Ends the span of counted rows: the last, perhaps short, batches.
    pub(crate) fn finish(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        let mut closed = Vec::new();
        self.grouper.finish(&mut closed);
        let mut cursor = self.at.take().unwrap_or_default();
        (cursor.epoch, cursor.ended) = (self.count.epoch, true);
        self.at = Some(cursor);
        self.close_all(&mut closed, out)?;
        self.pieces.keep_only(&mut self.grouper)?;
        self.at = None;
        Ok(())
    }

    /// Puts out counted batches that are complete.
    fn close_all(&mut self, closed: &mut Vec<Group<Held>>, out: &mut Vec<Batch>) -> Result<()> {
        let closed = std::mem::take(closed);
        for (at, group) in closed.iter().enumerate() {
            self.count.batches += 1;
            self.count.step += 1;
            let cursor = Arc::new(self.cursor(&closed[at + 1..])?);
            let mut members = self.pieces.take(&group.rows, &self.whole)?;
            if self.deal.batch.remainder == Remainder::Pad {
                members = self.padded(members, group.packs.as_ref())?;
                self.last = Some((members.clone(), group.packs.clone()));
            }
            let place = (self.count.epoch, self.count.step - 1);
            self.emit(members, group.packs.clone(), place, cursor, out)?;
        }
        Ok(())
    }

    /// Where the stream of counted rows stands, with batches that are complete but not taken.
    fn cursor(&self, behind: &[Group<Held>]) -> Result<Cursor> {
        let Some(at) = &self.at else {
            return Ok(internal_err!("a batch is complete before a row came")?);
        };
        let mut cursor = Cursor {
            step: self.count.step,
            batches: self.count.batches,
            rows: self.count.rows,
            carry: None,
            carry_passes: Vec::new(),
            ..at.clone()
        };
        if !self.grouper.is_empty() || !behind.is_empty() {
            let carry = Carry {
                ready: behind.to_vec(),
                ..self.grouper.carry()
            };
            cursor.set_carry(&carry.map(|held| Ok::<_, Error>(held.carried))?);
        }
        Ok(cursor)
    }

    /// The rows with the errors of their keys.
    fn with_key_errors(&self, mut rows: RowBatch) -> Result<RowBatch> {
        if let Some(keys) = &self.keys {
            for (row, error) in keys.keys(&rows)?.errors {
                rows.errors.entry(row).or_default().push(error);
            }
        }
        Ok(rows)
    }

    /// Fills a short batch by repeating its rows, or those of the batch before it where it has none.
    fn padded(&self, members: RowBatch, packs: Option<&Vec<u32>>) -> Result<RowBatch> {
        let Some(full) = self.deal.full().filter(|_| packs.is_none()) else {
            return Ok(members);
        };
        let full = full as usize;
        match (&self.last, members.len()) {
            (_, n) if n == full => Ok(members),
            (Some((last, _)), 0) => Ok(last.clone()),
            (None, 0) => Ok(members),
            (_, n) => {
                let around = UInt64Array::from_iter_values((0..full).map(|i| (i % n) as u64));
                Ok(members.take(&around)?)
            }
        }
    }

    /// Settles the failed rows of a batch and puts it out.
    fn emit(
        &mut self,
        mut members: RowBatch,
        packs: Option<Vec<u32>>,
        (epoch, step): (u64, u64),
        cursor: Arc<Cursor>,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        if let Some(padding) = &self.padding {
            padding.check(&mut members)?;
        }
        let (members, packs) = match members.errors.is_empty() {
            true => (members, packs),
            false => self.settled(members, packs)?,
        };
        let rows = Rows::try_from_array(&members.rows)?;
        let batch = self.record(members.columns, members.rows.len(), packs)?;
        self.stats.rows += batch.num_rows() as u64;
        self.stats.batches += 1;
        let columns = batch.columns().iter();
        let bytes = columns.map(|c| c.to_data().get_slice_memory_size().unwrap_or(0) as u64);
        self.stats.bytes += bytes.sum::<u64>();
        out.push(Batch {
            epoch,
            step,
            batch,
            rows,
            snapshot: Arc::clone(&self.snapshot),
            name: Arc::clone(&self.name),
            cursor,
        });
        Ok(())
    }

    /// The rows of a batch that its policy leaves, and how they are packed.
    fn settled(
        &mut self,
        members: RowBatch,
        packs: Option<Vec<u32>>,
    ) -> Result<(RowBatch, Option<Vec<u32>>)> {
        let ids = members.row_ids()?;
        let failures: Vec<Failure> = { members.errors.iter() }
            .map(|(&row, errors)| self.failure(&ids, row, reported(errors)))
            .collect();
        let settled = settle(self.on_error, members, |row, error| {
            self.failure(&ids, row, error)
        })?;
        let room = KEPT_FAILURES.saturating_sub(self.stats.failures.len());
        self.stats.failures.extend(failures.into_iter().take(room));
        self.stats.skipped += settled.fates.skipped;
        self.stats.replaced += settled.fates.replaced;
        self.stats.nulled += settled.fates.nulled;
        let packs = packs.map(|packs| pack::left(&packs, &settled.picks));
        let picks = settled.picks.iter().map(|&row| row as u64);
        let picks = UInt64Array::from_iter_values(picks);
        Ok((settled.rows.take(&picks)?, packs))
    }

    fn record(
        &self,
        mut columns: Vec<ArrayRef>,
        rows: usize,
        packs: Option<Vec<u32>>,
    ) -> Result<RecordBatch> {
        columns.truncate(self.whole.fields().len() - self.hidden());
        if let Some(packing) = &self.packing {
            return packing.pack(&columns, &packs.unwrap_or_default());
        }
        if let Some(padding) = &self.padding {
            columns = padding.pad(columns)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        RecordBatch::try_new_with_options(schema, columns, &options).map_err(engine)
    }

    /// Hidden columns: the last ones.
    fn hidden(&self) -> usize {
        let fields = self.whole.fields().iter();
        fields.filter(|field| is_hidden(field.name())).count()
    }

    fn failure(&self, ids: &Rows, row: usize, error: &SlotError) -> Failure {
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
    }
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
