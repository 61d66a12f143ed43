//! Rows with columns that are computed when something looks at them, if anything does.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, take_record_batch};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::logical_expr::Expr;
use forebay_udfs::row::ROW_COLUMN;

use super::{Evaluated, Probe, row_bytes, with_column};

/// Bytes of rows whose images are decoded, at most, or one row: that takes some twenty milliseconds, which a
/// run that needs it begins with.
const DECODED: u64 = 1 << 20;

/// Rows of a profile. A column whose type fixes its size tells nothing more when it is computed.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) batch: RecordBatch,
    late: Vec<Late>,
}

/// A column that is not computed yet.
#[derive(Debug, Clone)]
pub(super) struct Late {
    pub(super) name: String,
    pub(super) expr: Expr,
    pub(super) field: Field,
    /// Whether it decodes images.
    pub(super) decodes: bool,
}

impl From<RecordBatch> for Rows {
    fn from(batch: RecordBatch) -> Self {
        Self {
            batch,
            late: Vec::new(),
        }
    }
}

impl Rows {
    /// The columns that an expression reads, those that are not computed included, and the hidden row column.
    pub(super) fn schema_of(&self, expr: &Expr) -> SchemaRef {
        let schema = self.batch.schema_ref();
        let is_late = |name: &String| self.late.iter().any(|late| late.name == *name);
        let mut fields: Vec<FieldRef> = read_by(schema, expr)
            .into_iter()
            .map(|index| Arc::clone(&schema.fields()[index]))
            .filter(|field| !is_late(field.name()))
            .collect();
        let read = expr.column_refs();
        for (at, late) in self.late.iter().enumerate() {
            let is_read = read.iter().any(|column| column.name == late.name);
            let is_last = self.late[at + 1..].iter().all(|l| l.name != late.name);
            if is_read && is_last {
                let field = late.field.clone().with_name(&late.name);
                fields.push(Arc::new(field.with_nullable(true)));
            }
        }
        Arc::new(Schema::new(fields))
    }

    /// The rows with a column that is computed when it is looked at.
    pub(super) fn with_late(mut self, late: Late) -> Self {
        self.late.push(late);
        self
    }

    /// Whether an expression reads columns that are computed already.
    pub(super) fn has(&self, expr: &Expr) -> bool {
        let read = expr.column_refs();
        !self
            .late
            .iter()
            .any(|late| read.iter().any(|column| column.name == late.name))
    }

    /// The rows with all columns computed, and without those that fail.
    pub(super) fn at_hand(self, probe: &dyn Probe) -> Option<RecordBatch> {
        let mut batch = self.batch;
        for late in self.late {
            batch = if late.decodes { few(batch) } else { batch };
            let evaluated = probe.evaluate(&late.expr, &only(&batch, &late.expr)?)?;
            batch = sound(batch, &late.name, evaluated)?;
        }
        Some(batch)
    }

    /// These rows, the mask's alone.
    pub(super) fn filtered(self, mask: &BooleanArray) -> Option<Self> {
        Some(Self {
            batch: filter_record_batch(&self.batch, mask).ok()?,
            late: self.late,
        })
    }
}

/// The indices of the columns that an expression reads, and of the hidden row column, ascending.
fn read_by(schema: &Schema, expr: &Expr) -> Vec<usize> {
    let read = expr.column_refs();
    let names = read.iter().map(|column| column.name.as_str());
    let places = names
        .chain([ROW_COLUMN])
        .filter_map(|name| schema.index_of(name).ok());
    places.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The columns that an expression reads, and the hidden row column.
pub(super) fn only(rows: &RecordBatch, expr: &Expr) -> Option<RecordBatch> {
    rows.project(&read_by(rows.schema_ref(), expr)).ok()
}

/// The rows with a column, without those that failed.
pub(super) fn sound(rows: RecordBatch, name: &str, evaluated: Evaluated) -> Option<RecordBatch> {
    let Evaluated {
        values,
        field,
        failed,
    } = evaluated;
    let rows = with_column(&rows, name, field, values)?;
    let sound: BooleanArray = (0..rows.num_rows())
        .map(|row| Some(failed.binary_search(&row).is_err()))
        .collect();
    filter_record_batch(&rows, &sound).ok()
}

/// The first rows, in memory of their own: a slice of lists would be as large as all of them.
///
/// # Errors
/// A column of a type that no rows can be taken of.
pub fn first(rows: &RecordBatch, count: usize) -> Result<RecordBatch, ArrowError> {
    let count = count.min(rows.num_rows()) as u32;
    take_record_batch(rows, &UInt32Array::from_iter_values(0..count))
}

/// The first rows, up to [`DECODED`].
pub(super) fn few(rows: RecordBatch) -> RecordBatch {
    let columns = rows.columns().iter();
    let each = columns.map(row_bytes).sum::<u64>().max(1);
    let count = (DECODED / each).max(1) as usize;
    first(&rows, count).unwrap_or(rows)
}
