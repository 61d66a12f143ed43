//! Computed rows that wait for their batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use arrow::datatypes::Schema;
use datafusion::common::internal_err;

use crate::error::{Error, Result};
use crate::fragment::evaluate::{concatenated as joined_arrays, is_oversized};
use crate::fragment::row_batch::{RowBatch, RowErrors};
use crate::order::Snapshot;
use crate::stream::accountant::{ALL_ROWS, Accountant, StreamRow};
use crate::stream::cursor::CarriedRow;

/// A computed row that waits for its batch in counted mode: its location, and its name in a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Number of the piece that holds the row.
    pub(super) piece: u32,
    /// Index of the row in the piece.
    pub(super) row: u32,
    pub(super) carried: CarriedRow,
}

impl StreamRow for Held {
    fn carried(&self) -> CarriedRow {
        self.carried
    }
}

/// Computed rows that were not emitted yet, in the batches (pieces) in which they were computed.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Planned rows, in stream order.
    queue: VecDeque<RowBatch>,
    /// Counted rows, by piece number.
    numbered: BTreeMap<u32, RowBatch>,
    next: u32,
    empty: Option<ArrayRef>,
}

impl Pieces {
    /// Adds planned rows.
    pub(super) fn push(&mut self, rows: RowBatch) {
        self.empty.get_or_insert_with(|| rows.rows.slice(0, 0));
        if !rows.is_empty() {
            self.queue.push_back(rows);
        }
    }

    /// Takes out the next planned rows.
    pub(super) fn pop(&mut self, rows: usize, schema: &Schema) -> Result<RowBatch> {
        let (mut taken, mut missing) = (Vec::new(), rows);
        if rows == ALL_ROWS {
            taken.extend(self.queue.drain(..));
            missing = 0;
        }
        while missing > 0 {
            let Some(first) = self.queue.pop_front() else {
                return Ok(internal_err!(
                    "a batch was planned with {rows} rows, of which {missing} were not computed"
                )?);
            };
            let n = missing.min(first.len());
            if n < first.len() {
                self.queue.push_front(first.slice(n, first.len() - n));
            }
            taken.push(if n < first.len() {
                first.slice(0, n)
            } else {
                first
            });
            missing -= n;
        }
        let Some(empty) = &self.empty else {
            return Ok(internal_err!("a batch is due before any rows")?);
        };
        concatenated(&taken, schema, empty)
    }

    /// Adds counted rows as a piece, and returns its number.
    pub(super) fn add(&mut self, rows: RowBatch) -> u32 {
        self.empty.get_or_insert_with(|| rows.rows.slice(0, 0));
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.numbered.insert(number, rows);
        number
    }

    /// Returns copies of counted rows, in the order of `rows`.
    pub(super) fn take(&self, rows: &[Held], schema: &Schema) -> Result<RowBatch> {
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        for held in rows {
            match runs.last_mut() {
                Some((piece, _, end)) if *piece == held.piece && *end == held.row => *end += 1,
                _ => runs.push((held.piece, held.row, held.row + 1)),
            }
        }
        let mut taken = Vec::with_capacity(runs.len());
        let mut at = 0;
        while at < runs.len() {
            let (number, start, end) = runs[at];
            let Some(piece) = self.numbered.get(&number) else {
                return Ok(internal_err!("the rows of a batch were dropped")?);
            };
            // Scattered rows of one piece are taken at once.
            let same = runs[at..].iter().take_while(|(piece, ..)| *piece == number);
            let same = same.count();
            if same == 1 {
                taken.push(piece.slice(start as usize, (end - start) as usize));
            } else {
                let rows = runs[at..at + same]
                    .iter()
                    .flat_map(|&(_, start, end)| start..end);
                let rows = UInt64Array::from_iter_values(rows.map(u64::from));
                taken.push(piece.take(&rows)?);
            }
            at += same;
        }
        let Some(empty) = &self.empty else {
            return Ok(internal_err!("a batch is due before any rows")?);
        };
        concatenated(&taken, schema, empty)
    }

    /// Drops the pieces that no open group uses. If most rows of a piece are unused, the others are
    /// copied out of it.
    pub(super) fn keep_only(&mut self, held: &mut Accountant<Held>) -> Result<()> {
        let mut used: BTreeMap<u32, usize> = BTreeMap::new();
        for row in held.held() {
            *used.entry(row.piece).or_default() += 1;
        }
        self.numbered.retain(|number, _| used.contains_key(number));
        let rows: usize = self.numbered.values().map(RowBatch::len).sum();
        let needed: usize = used.values().sum();
        if rows <= 4 * needed.max(64) {
            return Ok(());
        }
        for (&number, piece) in &mut self.numbered {
            let piece_rows = held.held().filter(|row| row.piece == number);
            let mut rows: Vec<u32> = piece_rows.map(|row| row.row).collect();
            rows.sort_unstable();
            let indices = UInt64Array::from_iter_values(rows.iter().map(|&row| row.into()));
            *piece = piece.take(&indices)?;
            for row in held.held_mut().filter(|row| row.piece == number) {
                row.row = rows.binary_search(&row.row).unwrap_or(0) as u32;
            }
        }
        Ok(())
    }
}

/// Concatenates batches of rows; without any, returns an empty batch.
pub(super) fn joined(
    pieces: &[RowBatch],
    schema: &Schema,
    snapshot: &Snapshot,
) -> Result<RowBatch> {
    concatenated(pieces, schema, &snapshot.row_ids(&[]).to_array()?)
}

fn concatenated(pieces: &[RowBatch], schema: &Schema, no_rows: &ArrayRef) -> Result<RowBatch> {
    match pieces {
        [only] => return Ok(only.clone()),
        [] => return Ok(RowBatch::empty(schema, Arc::clone(no_rows))),
        _ => {}
    }
    let join = |column: &dyn Fn(&RowBatch) -> ArrayRef| {
        let arrays: Vec<ArrayRef> = pieces.iter().map(column).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
        joined_arrays(&arrays)
    };
    let rows: usize = pieces.iter().map(RowBatch::len).sum();
    let columns = schema.fields().iter().enumerate();
    let columns = columns.map(|(i, field)| {
        join(&|b| Arc::clone(&b.columns[i])).map_err(|error| if is_oversized(&error) { Error::Config(format!(
                "column \"{}\" of a batch of {rows} rows is larger than its type {} can hold: {error}; make \
                 batches smaller, or give the column a type with larger offsets (arrow_cast(x, 'LargeUtf8'))",
                field.name(),
                field.data_type()
            )) } else { Error::Engine(error) })
    });
    let (mut errors, mut offset) = (RowErrors::new(), 0);
    for piece in pieces {
        let piece_rows = piece.errors.iter();
        errors.extend(piece_rows.map(|(row, e)| (row + offset, e.clone())));
        offset += piece.len();
    }
    Ok(RowBatch {
        columns: columns.collect::<Result<_>>()?,
        rows: join(&|b| Arc::clone(&b.rows))?,
        errors,
    })
}
