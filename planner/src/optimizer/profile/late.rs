//! Rows of a profile, some of whose columns are computed only when an expression reads these
//! columns.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, take_record_batch};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::logical_expr::Expr;
use forebay_udfs::row::ROW_COLUMN;

use super::probe::{Evaluated, Probe};
use super::table::{row_bytes, with_column};

/// Maximum number of bytes of encoded rows whose images a profile decodes. Even if the first row is
/// larger, that row is decoded. Decoding delays the start of a run by some twenty milliseconds.
const DECODED: u64 = 1 << 20;

/// Rows over which a plan is profiled. A column whose size can be told from its type or from file
/// headers is computed only when an expression reads this column.
#[derive(Debug, Clone)]
pub(super) struct ProfiledRows {
    pub(super) batch: RecordBatch,
    late: Vec<Late>,
}

/// A column that is not computed yet: its name, its expression and its type.
#[derive(Debug, Clone)]
pub(super) struct Late {
    pub(super) name: String,
    pub(super) expr: Expr,
    pub(super) field: Field,
    /// True if computing the column decodes images.
    pub(super) decodes: bool,
}

impl From<RecordBatch> for ProfiledRows {
    fn from(batch: RecordBatch) -> Self {
        Self {
            batch,
            late: Vec::new(),
        }
    }
}

impl ProfiledRows {
    /// The schema of the columns that `expr` reads, including columns that are not computed yet,
    /// and of the hidden row column.
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

    /// Adds the column `late`, which is computed only when an expression reads this column.
    pub(super) fn with_late(mut self, late: Late) -> Self {
        self.late.push(late);
        self
    }

    /// True if all columns that `expr` reads have been computed.
    pub(super) fn has(&self, expr: &Expr) -> bool {
        let read = expr.column_refs();
        !self
            .late
            .iter()
            .any(|late| read.iter().any(|column| column.name == late.name))
    }

    /// Computes all columns that are not computed yet, and drops the rows on which an expression
    /// raises an error. If such a column decodes images, only a few rows are kept.
    pub(super) fn at_hand(self, probe: &dyn Probe) -> Option<RecordBatch> {
        let mut batch = self.batch;
        for late in self.late {
            batch = if late.decodes { few(batch) } else { batch };
            let evaluated = probe.evaluate(&late.expr, &only(&batch, &late.expr)?)?;
            batch = sound(batch, &late.name, evaluated)?;
        }
        Some(batch)
    }

    /// Keeps the rows for which `mask` is true.
    pub(super) fn filtered(self, mask: &BooleanArray) -> Option<Self> {
        Some(Self {
            batch: filter_record_batch(&self.batch, mask).ok()?,
            late: self.late,
        })
    }
}

/// The indices in `schema`, ascending, of the columns that `expr` reads and of the hidden row
/// column.
fn read_by(schema: &Schema, expr: &Expr) -> Vec<usize> {
    let read = expr.column_refs();
    let names = read.iter().map(|column| column.name.as_str());
    let places = names
        .chain([ROW_COLUMN])
        .filter_map(|name| schema.index_of(name).ok());
    places.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Restricts `rows` to the columns that `expr` reads and the hidden row column.
pub(super) fn only(rows: &RecordBatch, expr: &Expr) -> Option<RecordBatch> {
    rows.project(&read_by(rows.schema_ref(), expr)).ok()
}

/// Adds the column `name` with the values in `evaluated`, and drops the rows whose evaluation
/// raised an error.
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

/// Copies the first `count` rows to new memory. A slice would keep the memory of all rows alive.
///
/// # Errors
/// Fails if Arrow cannot copy rows of a column's type.
pub fn first(rows: &RecordBatch, count: usize) -> Result<RecordBatch, ArrowError> {
    let count = count.min(rows.num_rows()) as u32;
    take_record_batch(rows, &UInt32Array::from_iter_values(0..count))
}

/// Returns the first rows of `rows`: as many as have about [`DECODED`] bytes, and at least one.
pub(super) fn few(rows: RecordBatch) -> RecordBatch {
    let columns = rows.columns().iter();
    let each = columns.map(row_bytes).sum::<u64>().max(1);
    let count = (DECODED / each).max(1) as usize;
    first(&rows, count).unwrap_or(rows)
}
