//! Group keys of rows, computed from the hidden columns that decide the grouping of rows into
//! batches.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Schema, UInt32Type};
use datafusion::common::{Result, internal_err};
use forebay_planner::clauses::{BatchSize, Clauses};
use forebay_planner::pipeline::{BUCKET_COLUMN, LENGTH_COLUMN};

use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::stream::group::GroupKey;

/// The columns from which group keys are computed, and the limit on the length of sequences.
#[derive(Debug, Clone)]
pub(crate) struct KeyColumns {
    length: Option<usize>,
    bucket: Option<usize>,
    boundaries: Vec<u64>,
    /// Maximum length of a sequence that fits into a pack or batch, and the clause that sets this
    /// maximum. A row with a longer sequence fails.
    room: Option<(u64, String)>,
    /// Index of the column with the sequences. A sequence that is too long is an error of this
    /// column.
    sequences: Option<usize>,
}

/// The group keys of the rows of a batch.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// Group key of each row.
    pub(crate) keys: Vec<GroupKey>,
    /// Errors of the rows whose key could not be computed, by row index.
    pub(crate) errors: Vec<(usize, SlotError)>,
}

impl KeyColumns {
    /// Returns the key columns of a pipeline with these clauses, whose rows have `schema`; `None`
    /// if the grouping does not depend on the contents of rows.
    pub(crate) fn of(clauses: &Clauses, schema: &Schema) -> Option<Self> {
        let column = |name: &str| schema.index_of(name).ok();
        let boundaries = clauses.bucket.as_ref().map(|b| b.boundaries.clone());
        let pack = clauses.pack.as_ref().map(|pack| {
            let room = pack.into.get();
            (room, format!("PACK {} INTO {room}", pack.column))
        });
        let tokens = clauses.tokens_of.as_ref().and_then(|column| {
            let BatchSize::Tokens(tokens) = clauses.batch?.size else {
                return None;
            };
            Some((
                tokens.get(),
                format!("BATCH BY TOKENS {tokens} ON {column}"),
            ))
        });
        let sequences = clauses.pack.as_ref().map(|pack| &pack.column);
        let sequences = sequences.or(clauses.tokens_of.as_ref());
        let this = Self {
            sequences: sequences.and_then(|name| column(name)),
            length: column(LENGTH_COLUMN),
            bucket: column(BUCKET_COLUMN),
            boundaries: boundaries.unwrap_or_default(),
            room: pack.or(tokens),
        };
        (this.length.is_some() || this.bucket.is_some()).then_some(this)
    }

    /// Returns the same key columns, with their indices in `schema`, the schema of another
    /// fragment.
    pub(crate) fn within(&self, schema: &Schema) -> Self {
        Self {
            length: self.length.and(schema.index_of(LENGTH_COLUMN).ok()),
            bucket: self.bucket.and(schema.index_of(BUCKET_COLUMN).ok()),
            ..self.clone()
        }
    }

    /// Computes the group keys of `rows`. A row whose key cannot be computed gets the key of an
    /// empty sequence, and an error.
    pub(crate) fn keys(&self, rows: &RowBatch) -> Result<Keyed> {
        let mut keys = vec![GroupKey::default(); rows.len()];
        let mut errors = Vec::new();
        let failed = |row: usize, column: usize| {
            let here = |e: &SlotError| e.column == Some(column) || e.column.is_none();
            rows.errors.get(&row).is_some_and(|e| e.iter().any(here))
        };
        let mut fail = |row: usize, column: usize, operator: &str, cause: String| {
            let error = SlotError {
                column: Some(column),
                operator: operator.to_owned(),
                cause,
            };
            errors.push((row, error));
        };
        if let Some(column) = self.length {
            let Some(values) = rows.columns[column].as_primitive_opt::<UInt32Type>() else {
                return internal_err!("the lengths are not u32");
            };
            let sound = keys.iter_mut().enumerate();
            for (row, key) in sound.filter(|(row, _)| !failed(*row, column)) {
                let length = if values.is_null(row) {
                    0
                } else {
                    values.value(row)
                };
                match &self.room {
                    Some((room, operator)) if u64::from(length) > *room => fail(
                        row,
                        self.sequences.unwrap_or(column),
                        operator,
                        format!(
                            "the sequence has {length} elements, more than {room}; filter such rows, or cut the \
                             sequence"
                        ),
                    ),
                    _ => key.length = length,
                }
            }
        }
        if let Some(column) = self.bucket {
            let Some(values) = rows.columns[column].as_primitive_opt::<Float64Type>() else {
                return internal_err!("the bucket values are not f64");
            };
            let sound = keys.iter_mut().enumerate();
            for (row, key) in sound.filter(|(row, _)| !failed(*row, column)) {
                let value = (!values.is_null(row)).then(|| values.value(row));
                if let Some(value) = value.filter(|value| !value.is_nan()) {
                    key.bucket = self.boundaries.partition_point(|&b| b as f64 <= value) as u32;
                } else {
                    let what = if value.is_none() { "null" } else { "NaN" };
                    let cause = format!("the expression is {what}, which belongs to no bucket");
                    fail(row, column, "BUCKET BY", cause);
                }
            }
        }
        Ok(Keyed { keys, errors })
    }
}
