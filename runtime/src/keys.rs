//! Keys of rows: the hidden columns that decide groups.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Schema, UInt32Type};
use datafusion::common::{Result, internal_datafusion_err};
use forebay_planner::clauses::{BatchSize, Clauses};
use forebay_planner::pipeline::{BUCKET_COLUMN, LENGTH_COLUMN};

use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::group::Key;
use crate::job::Reader;

/// Where the keys of rows are found, and which are too large.
#[derive(Debug, Clone)]
pub(crate) struct KeyColumns {
    length: Option<usize>,
    bucket: Option<usize>,
    boundaries: Vec<u64>,
    /// Largest length that fits anywhere, and what it has to fit.
    room: Option<(u64, String)>,
    /// The column of sequences: what is at fault where one is too long.
    sequences: Option<usize>,
}

/// The keys of a batch's rows.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// One per row.
    pub(crate) keys: Vec<Key>,
    /// Rows that have none.
    pub(crate) errors: Vec<(usize, SlotError)>,
}

impl KeyColumns {
    /// The keys of a pipeline's rows; `None` where rows are not grouped by what they hold.
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
        let of = clauses.pack.as_ref().map(|pack| &pack.column);
        let of = of.or(clauses.tokens_of.as_ref());
        let this = Self {
            sequences: of.and_then(|name| column(name)),
            length: column(LENGTH_COLUMN),
            bucket: column(BUCKET_COLUMN),
            boundaries: boundaries.unwrap_or_default(),
            room: pack.or(tokens),
        };
        (this.length.is_some() || this.bucket.is_some()).then_some(this)
    }

    /// The same keys in the rows of another fragment.
    pub(crate) fn within(&self, reader: &Reader) -> Self {
        let schema = reader.fragment.schema();
        Self {
            length: self.length.and(schema.index_of(LENGTH_COLUMN).ok()),
            bucket: self.bucket.and(schema.index_of(BUCKET_COLUMN).ok()),
            ..self.clone()
        }
    }

    /// The keys of rows. A row without one has the key of an empty sequence, and an error.
    pub(crate) fn keys(&self, rows: &RowBatch) -> Result<Keyed> {
        let mut keys = vec![Key::default(); rows.len()];
        let mut errors = Vec::new();
        let failed = |row: usize, column: usize| {
            let here = |e: &SlotError| e.column == Some(column) || e.column.is_none();
            rows.errors.get(&row).is_some_and(|e| e.iter().any(here))
        };
        if let Some(column) = self.length {
            let values = rows.columns[column].as_primitive_opt::<UInt32Type>();
            let values = values.ok_or_else(|| internal_datafusion_err!("lengths are no u32"))?;
            for (row, key) in keys.iter_mut().enumerate() {
                if values.is_null(row) || failed(row, column) {
                    continue;
                }
                let length = values.value(row);
                match &self.room {
                    Some((room, operator)) if u64::from(length) > *room => errors.push((
                        row,
                        SlotError {
                            column: Some(self.sequences.unwrap_or(column)),
                            operator: operator.clone(),
                            cause: format!(
                                "the sequence has {length} elements, more than {room}; filter such rows, \
                                 or cut the sequence"
                            ),
                        },
                    )),
                    _ => key.length = length,
                }
            }
        }
        if let Some(column) = self.bucket {
            let values = rows.columns[column].as_primitive_opt::<Float64Type>();
            let values = values.ok_or_else(|| internal_datafusion_err!("buckets are no f64"))?;
            for (row, key) in keys.iter_mut().enumerate() {
                if failed(row, column) {
                    continue;
                }
                if values.is_null(row) || values.value(row).is_nan() {
                    let what = if values.is_null(row) { "null" } else { "NaN" };
                    errors.push((
                        row,
                        SlotError {
                            column: Some(column),
                            operator: "BUCKET BY".to_owned(),
                            cause: format!("the expression is {what}, which no bucket holds"),
                        },
                    ));
                    continue;
                }
                let value = values.value(row);
                let below = self.boundaries.partition_point(|&b| b as f64 <= value);
                key.bucket = below as u32;
            }
        }
        Ok(Keyed { keys, errors })
    }
}
