//! Computed rows that wait for their batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{Field, Schema};
use datafusion::common::{DataFusionError, internal_err};

use crate::error::{Error, Result};
use crate::fragment::concat::{concatenated, is_oversized};
use crate::fragment::row_batch::{RowBatch, RowErrors};
use crate::order::Snapshot;
use crate::stream::accountant::{ALL_ROWS, Accountant, StreamPoint};
use crate::stream::cursor::{CarriedRow, InputPosition};
use crate::stream::origin::SegmentOrigin;

/// A computed row that waits for its batch in counted mode: its location among the pieces. Few rows are
/// ever named in a cursor, so a name is made when it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Number of the piece that holds the row.
    pub(super) piece: u32,
    /// Index of the row in the piece.
    pub(super) row: u32,
    /// Index of the row among the output rows of its stored row, from 0.
    pub(super) nth: u32,
}

/// The names in a cursor of the rows of a piece.
#[derive(Debug)]
pub(super) enum RowNames {
    /// The rows of the segment that is being counted are named by their stored rows.
    Segment(Arc<SegmentOrigin>),
    /// The names of the rows that wait, by ascending index in the piece. The order of a whole window would
    /// stay in memory with a segment's origin, however few of its rows wait.
    Listed(Vec<(u32, CarriedRow)>),
}

/// Rows in counted mode that were computed together.
#[derive(Debug)]
struct Piece {
    rows: RowBatch,
    /// Positions of the rows in their segment.
    positions: UInt64Array,
    names: RowNames,
}

impl Piece {
    fn name(&self, snapshot: &Snapshot, held: &Held) -> Result<CarriedRow> {
        let name = match &self.names {
            RowNames::Segment(origin) => {
                let position = self.positions.values().get(held.row as usize);
                position.and_then(|&position| origin.name(snapshot, position, held.nth))
            }
            RowNames::Listed(names) => {
                let at = names.binary_search_by_key(&held.row, |(row, _)| *row);
                at.ok().map(|at| names[at].1)
            }
        };
        match name {
            Some(name) => Ok(name),
            None => Ok(internal_err!("a row that waits for its batch has no name")?),
        }
    }

    /// Names the rows `held`, in ascending order, and no others.
    fn list_names(&mut self, snapshot: &Snapshot, held: &[Held]) -> Result<()> {
        if matches!(self.names, RowNames::Segment(_)) {
            let names = held
                .iter()
                .map(|held| Ok((held.row, self.name(snapshot, held)?)));
            self.names = RowNames::Listed(names.collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// Keeps only the rows `held`, in ascending order.
    fn keep(&mut self, held: &[Held]) -> Result<()> {
        let indices = UInt64Array::from_iter_values(held.iter().map(|held| held.row.into()));
        self.rows = self.rows.take(&indices)?;
        self.positions = self.rows.row_ids()?.position;
        if let RowNames::Listed(names) = &mut self.names {
            names.retain(|(row, _)| held.binary_search_by_key(row, |held| held.row).is_ok());
            for (at, (row, _)) in (0..).zip(names) {
                *row = at;
            }
        }
        Ok(())
    }
}

/// Computed rows that were not emitted yet, in the batches (pieces) in which they were computed.
#[derive(Debug, Default)]
pub(super) struct PendingRows {
    /// Rows of planned batches, in stream order.
    queue: VecDeque<RowBatch>,
    /// Rows in counted mode, by piece number.
    numbered: BTreeMap<u32, Piece>,
    next: u32,
}

/// A point in a stream whose rows are counted as they are computed.
pub(super) struct HeldPoint<'a, F> {
    pub(super) pieces: &'a PendingRows,
    pub(super) snapshot: &'a Snapshot,
    /// Returns the positions of the inputs.
    pub(super) inputs: F,
}

impl<F: Fn() -> InputPosition> StreamPoint<Held> for HeldPoint<'_, F> {
    fn inputs(&self) -> InputPosition {
        (self.inputs)()
    }

    fn name(&self, row: &Held) -> Result<CarriedRow> {
        match self.pieces.numbered.get(&row.piece) {
            Some(piece) => piece.name(self.snapshot, row),
            None => Ok(internal_err!("a row that waits for its batch was dropped")?),
        }
    }
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
    pub(super) fn add(&mut self, rows: RowBatch, names: RowNames) -> Result<u32> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let piece = Piece {
            positions: rows.row_ids()?.position,
            rows,
            names,
        };
        self.numbered.insert(number, piece);
        Ok(number)
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
                piece.rows.slice(first.row as usize, same.len())
            } else {
                let indices = same.iter().map(|held| held.row.into());
                piece.rows.take(&UInt64Array::from_iter_values(indices))?
            });
        }
        joined(&taken, schema)
    }

    /// Drops the pieces that have no row of an open group, and names the rows of the others. If most rows
    /// of these are not needed, the needed rows are copied out of their pieces.
    pub(super) fn keep_only(
        &mut self,
        held: &mut Accountant<Held>,
        snapshot: &Snapshot,
    ) -> Result<()> {
        let mut used: BTreeMap<u32, Vec<Held>> = BTreeMap::new();
        for row in held.held() {
            used.entry(row.piece).or_default().push(*row);
        }
        self.numbered.retain(|number, _| used.contains_key(number));
        let (mut rows, mut needed) = (0, 0);
        for (number, piece) in &mut self.numbered {
            let held = used.entry(*number).or_default();
            held.sort_unstable_by_key(|held| held.row);
            held.dedup_by_key(|held| held.row);
            piece.list_names(snapshot, held)?;
            rows += piece.rows.len();
            needed += held.len();
        }
        if rows <= 4 * needed.max(64) {
            return Ok(());
        }
        for (number, piece) in &mut self.numbered {
            piece.keep(&used[number])?;
        }
        for row in held.held_mut() {
            let of_piece = used.get(&row.piece).map_or(&[][..], Vec::as_slice);
            let at = of_piece.binary_search_by_key(&row.row, |held| held.row);
            row.row = at.unwrap_or(0) as u32;
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

#[cfg(test)]
mod tests {
    use arrow::array::UInt32Array;
    use forebay_udfs::row::RowColumn;

    use super::*;
    use crate::order::StoredRow;
    use crate::order::tests::snapshot;
    use crate::segment::SegmentRows;

    /// Returns rows without columns, at these positions of their segment.
    fn rows(positions: &[u64]) -> RowBatch {
        let zeros = UInt32Array::from(vec![0; positions.len()]);
        let numbers = UInt64Array::from(positions.to_vec());
        let rows = RowColumn {
            position: numbers.clone(),
            file: zeros.clone(),
            row: numbers.clone(),
            child: zeros,
            hash: numbers.clone(),
            pass: numbers,
        };
        RowBatch {
            columns: Vec::new(),
            rows: rows.to_array().unwrap(),
            errors: RowErrors::new(),
        }
    }

    fn held(row: u32, nth: u32) -> Held {
        Held { piece: 0, row, nth }
    }

    #[test]
    fn names_stay_with_their_rows_and_let_go_of_the_segment() {
        let snapshot = snapshot(&[&[10], &[10]], 0..u64::MAX);
        let order: Vec<StoredRow> = { (0..5).rev() }
            .map(|offset| StoredRow { split: 1, offset })
            .collect();
        let order = Arc::new(order);
        let origin = SegmentOrigin {
            epoch: 3,
            before: InputPosition {
                drawn: 0,
                inputs: vec![Default::default()],
            },
            rows: SegmentRows::of_order(&order),
            input_of: Arc::from([0]),
            mixes: false,
        };
        let name = |stored, nth| CarriedRow {
            stored,
            nth,
            pass: (3, 0),
        };
        // Two output rows of the stored row at position 3.
        let (batch, origin) = (rows(&[0, 1, 3, 3, 4]), Arc::new(origin));
        let mut piece = Piece {
            positions: batch.row_ids().unwrap().position,
            rows: batch,
            names: RowNames::Segment(origin),
        };
        let waiting = [held(1, 0), held(3, 1), held(4, 0)];
        let expected = [name(13, 0), name(11, 1), name(10, 0)];
        let names = |piece: &Piece, held: &[Held]| -> Vec<CarriedRow> {
            let names = held.iter().map(|held| piece.name(&snapshot, held));
            names.collect::<Result<_>>().unwrap()
        };
        assert_eq!(names(&piece, &waiting), expected);
        assert_eq!(Arc::strong_count(&order), 2);
        piece.list_names(&snapshot, &waiting).unwrap();
        assert_eq!(Arc::strong_count(&order), 1);
        assert_eq!(names(&piece, &waiting), expected);
        assert!(piece.name(&snapshot, &held(0, 0)).is_err());
        piece.keep(&waiting[1..]).unwrap();
        assert_eq!(piece.rows.len(), 2);
        let renumbered = [held(0, 1), held(1, 0)];
        assert_eq!(names(&piece, &renumbered), expected[1..]);
        assert!(piece.name(&snapshot, &held(2, 0)).is_err());
    }
}
