//! The tail of a pipeline: what crosses segments. It puts rows together into batches and settles
//! failed rows by the pipeline's policy, in stream order.

mod budget;
mod counted;
mod failure;
mod held;
mod made;
mod pack;
mod pad;
mod settle;
mod trial;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef};
use forebay_planner::batches;
use forebay_planner::clauses::{Clauses, EqualSteps, OnError, Remainder};
use forebay_planner::pipeline::is_hidden;
use forebay_udfs::row::Rows;

pub(crate) use self::budget::{Budget, Spent};
pub(crate) use self::failure::uri;
pub use self::failure::{Failure, KEPT_FAILURES, RunStats};
use self::held::{Held, Pieces};
use self::made::Made;
use self::pack::Packing;
use self::pad::Padding;
use self::settle::{engine, reported, settle};
pub(crate) use self::trial::Trial;
use crate::cursor::Cursor;
use crate::deal::Deal;
use crate::error::Result;
use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::group::{Grouper, Grouping, Key};
use crate::keys::KeyColumns;
use crate::letters::Letter;
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
    /// Rows (or packs) at its end that only repeat others, of this batch or of another one.
    pub padded: usize,
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
    /// Whether it is the batch before it once more. Where a run goes on, its rows come with it.
    pub(crate) repeats: bool,
    /// Its rows are those of another rank's batch, which counts them.
    pub(crate) is_borrowed: bool,
    /// Rows (or packs) that it is filled up to by repeating its own.
    pub(crate) units: Option<usize>,
    /// Where the stream stands behind it.
    pub(crate) cursor: Arc<Cursor>,
}

/// Rows of a batch that is planned to have whatever rows come.
pub(crate) const ALL: usize = usize::MAX;

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
    /// How many rows of an epoch may fail.
    pub(crate) budget: Option<Budget>,
    spent: Spent,
    /// Watches for a function that fails in every row.
    pub(crate) trial: Trial,
    /// Failed rows that were not told yet, where they are told at all.
    letters: Option<Vec<Letter>>,
}

impl Tail {
    /// A tail for rows of `schema`, with what decides groups in hidden columns. Rows that are run again are looked
    /// at one by one: none is packed with others, or repeated.
    pub(crate) fn new(
        schema: &Schema,
        snapshot: Arc<Snapshot>,
        name: Arc<StreamName>,
        mut deal: Deal,
        clauses: &Clauses,
        again: bool,
    ) -> Result<Self> {
        if again {
            deal.batch.remainder = Remainder::Keep;
        }
        let on_error = match clauses.options.on_error {
            // Beside a row that is looked at by itself there is none that could stand in.
            OnError::Replace if again => OnError::Skip,
            on_error => on_error,
        };
        let keys = KeyColumns::of(clauses, schema);
        let whole = match on_error {
            OnError::Null => nullable(schema),
            _ => Arc::new(schema.clone()),
        };
        let clauses = &match again && clauses.pack.is_some() {
            true => Clauses {
                pack: None,
                pad: Vec::new(),
                ..clauses.clone()
            },
            false => clauses.clone(),
        };
        let schema = batches::schema(schema, clauses)?;
        let packing = match &clauses.pack {
            Some(pack) => {
                let packs = Arc::clone(&schema);
                Some(Packing::try_new(pack, &clauses.pad, &whole, packs)?)
            }
            None => None,
        };
        let padding = match packing.is_some() || clauses.pad.is_empty() {
            true => None,
            false => Some(Padding::try_new(&clauses.pad, &whole)?),
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
            budget: None,
            spent: Spent::default(),
            trial: Trial::default(),
            letters: clauses.options.dead_letters.as_ref().map(|_| Vec::new()),
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

    /// The rows that failed since they were asked for.
    pub(crate) fn take_letters(&mut self) -> Vec<Letter> {
        self.letters
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
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

    /// Whether counted rows made no batch in the epoch, or there were none at all where batches cross epochs.
    pub(crate) const fn is_idle(&self, continuous: bool) -> bool {
        match continuous {
            true => self.count.rows <= self.skip,
            false => self.count.batches == 0,
        }
    }

    /// Whether TAKE has all its rows, so that the rest of the epoch need not be computed.
    pub(crate) fn is_satisfied(&self) -> bool {
        self.count.rows >= self.skip.saturating_add(self.take)
    }

    /// Adds rows of which it is planned what batches they make.
    pub(crate) fn planned(
        &mut self,
        pieces: Vec<RowBatch>,
        batches: Vec<PlannedBatch>,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        pieces.into_iter().for_each(|rows| self.pieces.push(rows));
        for batch in batches {
            let (rows, packs, own) = match &self.last {
                Some((rows, packs)) if batch.repeats => (rows.clone(), packs.clone(), 0),
                _ => {
                    let mut rows = self.pieces.pop(batch.rows, &self.whole)?;
                    let comes_again = batch.repeats || batch.is_borrowed;
                    let own = if comes_again { 0 } else { rows.len() };
                    self.keyed(&mut rows)?;
                    (rows, batch.packs, own)
                }
            };
            let mut members = rows;
            if self.deal.batch.remainder == Remainder::Pad {
                members = self.padded(members, packs.as_ref())?;
            }
            if self.deal.batch.remainder == Remainder::Pad
                || self.deal.equal_steps == EqualSteps::Pad
            {
                self.last = Some((members.clone(), packs.clone()));
            }
            let place = (batch.epoch, batch.step);
            let mut made = self.settled((members, packs), own, place)?;
            if let Some(units) = batch.units {
                made.fill(units)?;
            }
            self.emit(made, place, batch.cursor, out)?;
        }
        Ok(())
    }

    /// The keys of rows, where they have any; rows without one get an error.
    fn keyed(&self, rows: &mut RowBatch) -> Result<Option<Vec<Key>>> {
        let Some(keys) = &self.keys else {
            return Ok(None);
        };
        let keyed = keys.keys(rows)?;
        for (row, error) in keyed.errors {
            rows.errors.entry(row).or_default().push(error);
        }
        Ok(Some(keyed.keys))
    }

    /// Fills a short batch by repeating its rows.
    fn padded(&self, members: RowBatch, packs: Option<&Vec<u32>>) -> Result<RowBatch> {
        let Some(full) = self.deal.full().filter(|_| packs.is_none()) else {
            return Ok(members);
        };
        let full = full as usize;
        let n = members.len();
        if n == full || n == 0 {
            return Ok(members);
        }
        let around = UInt64Array::from_iter_values((0..full).map(|i| (i % n) as u64));
        Ok(members.take(&around)?)
    }

    /// Settles the failed rows of a batch. The first `own` rows come here; others came before, and come again to
    /// fill the batch: their failures are known.
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
        let mut trial = std::mem::take(&mut self.trial);
        let tried = trial.see(own, &members.errors, |row, error| {
            let ids = members.row_ids()?;
            Ok(self.failure(&ids, row, error))
        });
        self.trial = trial;
        tried?;
        if members.errors.is_empty() {
            return Ok(Made::whole(members, packs, own));
        }
        let ids = members.row_ids()?;
        let mut failures = Vec::with_capacity(members.errors.len());
        for (&row, errors) in members.errors.range(..own) {
            let error = reported(errors);
            let failure = self.failure(&ids, row, error);
            if let Some(letters) = &mut self.letters {
                letters.push(Letter {
                    epoch,
                    step,
                    pass: ids.pass.value(row),
                    file: ids.file.value(row),
                    row: failure.row,
                    child: ids.child.value(row),
                    column: failure.column.clone(),
                    operator: failure.operator.clone(),
                    cause: failure.cause.clone(),
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
        let first = members.errors.first_key_value();
        let first = first.map(|(&row, errors)| self.failure(&ids, row, reported(errors)));
        let settled = settle(self.on_error, members, own, |row, error| {
            self.failure(&ids, row, error)
        })?;
        let room = KEPT_FAILURES.saturating_sub(self.stats.failures.len());
        self.stats.failures.extend(failures.into_iter().take(room));
        self.stats.skipped += settled.fates.skipped;
        self.stats.replaced += settled.fates.replaced;
        self.stats.nulled += settled.fates.nulled;
        Made::settled(settled, packs, own, first)
    }

    /// Puts a batch out.
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
