//! Computed rows that wait for their batch.

use std::collections::{BTreeMap, VecDeque};

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{Field, Schema};
use datafusion::common::{DataFusionError, internal_err};

use crate::error::{Error, Result};
use crate::fragment::evaluate::{concatenated, is_oversized};
use crate::fragment::row_batch::{RowBatch, RowErrors};
use crate::stream::accountant::{ALL_ROWS, Accountant, StreamRow};
use crate::stream::cursor::CarriedRow;

/// A computed row that waits for its batch in counted mode: its location among the pieces, and its
/// name in a cursor.
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
pub(super) struct PendingRows {
    /// Rows of planned batches, in stream order.
    queue: VecDeque<RowBatch>,
    /// Rows in counted mode, by piece number.
    numbered: BTreeMap<u32, RowBatch>,
    next: u32,
}

impl PendingRows {
    /// Adds rows of planned batches.
    pub(super) fn push(&mut self, rows: RowBatch) {
        if !rows.is_empty() {
            self.queue.push_back(rows);
        }
    }

    /// Removes and returns the next `rows` rows of planned batches.
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
            if missing < first.len() {
                taken.push(first.slice(0, missing));
                self.queue
                    .push_front(first.slice(missing, first.len() - missing));
                break;
            }
            missing -= first.len();
            taken.push(first);
        }
        joined(&taken, schema)
    }

    /// Adds `rows`, computed in counted mode, as a piece, and returns the number of the piece.
    pub(super) fn add(&mut self, rows: RowBatch) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.numbered.insert(number, rows);
        number
    }

    /// Returns the rows that `rows` locates, in this order, without removing them.
    pub(super) fn take(&self, rows: &[Held], schema: &Schema) -> Result<RowBatch> {
        let mut taken = Vec::new();
        for same in rows.chunk_by(|a, b| a.piece == b.piece) {
            let first = same[0];
            let Some(piece) = self.numbered.get(&first.piece) else {
                return Ok(internal_err!("the rows of a batch were dropped")?);
            };
            // Consecutive rows are a slice of the piece; scattered rows of a piece are copied in
            // one call.
            taken.push(if same.is_sorted_by(|a, b| a.row + 1 == b.row) {
                piece.slice(first.row as usize, same.len())
            } else {
                let indices = same.iter().map(|held| held.row.into());
                piece.take(&UInt64Array::from_iter_values(indices))?
            });
        }
        joined(&taken, schema)
    }

    /// Drops the pieces that have no row of an open group. If most rows of the remaining pieces
    /// are not needed, the needed rows are copied out of their pieces.
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

/// Concatenates `pieces`; returns an empty batch of `schema` if there are no pieces.
pub(super) fn joined(pieces: &[RowBatch], schema: &Schema) -> Result<RowBatch> {
    match pieces {
        [only] => return Ok(only.clone()),
        [] => return Ok(RowBatch::empty(schema)),
        _ => {}
    }
    let join = |column: &dyn Fn(&RowBatch) -> &ArrayRef| {
        let arrays = pieces.iter().map(|piece| column(piece).as_ref());
        concatenated(&arrays.collect::<Vec<_>>())
    };
    let rows: usize = pieces.iter().map(RowBatch::len).sum();
    let too_large = |field: &Field, error: DataFusionError| {
        if !is_oversized(&error) {
            return Error::Engine(error);
        }
        Error::Config(format!(
            "column \"{}\" of a batch of {rows} rows is larger than its type {} can hold: {error}; make \
             batches smaller, or give the column a type with larger offsets (arrow_cast(x, 'LargeUtf8'))",
            field.name(),
            field.data_type()
        ))
    };
    let columns = schema.fields().iter().enumerate().map(|(i, field)| {
        join(&|piece| &piece.columns[i]).map_err(|error| too_large(field, error))
    });
    let (mut errors, mut offset) = (RowErrors::new(), 0);
    for piece in pieces {
        let piece_rows = piece.errors.iter();
        errors.extend(piece_rows.map(|(row, e)| (row + offset, e.clone())));
        offset += piece.len();
    }
    Ok(RowBatch {
        columns: columns.collect::<Result<_>>()?,
        rows: join(&|piece| &piece.rows)?,
        errors,
    })
}
