//! A profile: what operators do to the sizes and numbers of a few rows.
//!
//! Types say how large a resized image is, not how large a photo of a folder is, nor how many rows a
//! predicate keeps. Where something depends on it, the written plan is run over a few rows, chosen by
//! hash, operator by operator. A profile holds no times, so the same data give the same plan.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema};
use datafusion::logical_expr::Expr;
use forebay_udfs::facts::Algebra;
use forebay_udfs::row::ROW_COLUMN;
use forebay_udfs::width::fixed_bytes;

use super::arena::{Arena, ParamId};
use super::facts::Log2;
use super::slots::Slot;
use super::spec::OpKind;
use super::tree::Tree;
use crate::rows::{RowOp, RowPlan};

/// Rows of a profile at most.
pub const ROWS: usize = 64;
/// Bytes of rows whose images are decoded, at most: that takes some twenty milliseconds, which every run
/// begins with.
const DECODED: u64 = 1 << 20;

/// Gives rows, and evaluates expressions over them.
pub trait Probe: fmt::Debug + Send + Sync {
    /// Some stored rows of a scan, with the hidden row column. `None` where there are none.
    fn sample(&self, occurrence: u32) -> Option<RecordBatch>;

    /// The values of an expression. `None` where it cannot be evaluated here.
    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated>;
}

/// Values of an expression.
#[derive(Debug)]
pub struct Evaluated {
    /// The values.
    pub values: ArrayRef,
    /// Their type, with its extension.
    pub field: Field,
    /// Rows without a value because they failed, ascending.
    pub failed: Vec<usize>,
}

/// Whether sizes or numbers of a plan's rows can only be guessed without a profile: where a column's type
/// does not fix its size, or a predicate decides.
pub fn is_guessed(plan: &RowPlan) -> bool {
    let decides = matches!(plan.op, RowOp::Filter { .. });
    let varies = matches!(plan.op, RowOp::Scan { .. })
        && plan
            .schema
            .fields()
            .iter()
            .any(|f| fixed_bytes(f.data_type()).is_none());
    decides || varies || plan.inputs.iter().any(is_guessed)
}

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Bytes a row of a scan's slots.
    pub stored: HashMap<Slot, Log2>,
    /// Bytes that an operator writes for each that it reads.
    pub growth: HashMap<ParamId, Log2>,
    /// Part of the rows that a filter keeps.
    pub kept: HashMap<ParamId, Log2>,
}

impl Profile {
    /// Profiles a plan.
    pub fn of(arena: &Arena, tree: &Tree, probe: &dyn Probe) -> Self {
        let mut profile = Self::default();
        profile.walk(arena, tree, probe);
        profile
    }

    /// Runs a plan over the sample, as far as that goes.
    fn walk(&mut self, arena: &Arena, tree: &Tree, probe: &dyn Probe) -> Option<RecordBatch> {
        match tree {
            Tree::Scan(scan) => {
                let spec = arena.scan(*scan);
                let rows = probe.sample(spec.occurrence)?;
                let mut columns: Vec<(String, ArrayRef, Field)> = Vec::new();
                let schema = spec.source.schema();
                for &(index, slot) in &spec.columns {
                    let field = schema.field(index).clone();
                    let values = rows.column_by_name(field.name())?;
                    self.stored.insert(slot, Log2::of(row_bytes(values)));
                    columns.push((arena.name(slot).to_owned(), Arc::clone(values), field));
                }
                let hidden = rows.schema().index_of(ROW_COLUMN).ok()?;
                let field = rows.schema().field(hidden).clone();
                columns.push((
                    ROW_COLUMN.to_owned(),
                    Arc::clone(rows.column(hidden)),
                    field,
                ));
                batch(columns, rows.num_rows())
            }
            Tree::Op(param, input) => {
                let rows = self.walk(arena, input, probe)?;
                self.operator(arena, *param, rows, probe)
            }
            Tree::Cache(input) => self.walk(arena, input, probe),
            // Either input's rows stand for all.
            Tree::Cat(inputs) => {
                let [a, b] = inputs
                    .each_ref()
                    .map(|input| self.walk(arena, input, probe));
                a.or(b)
            }
            Tree::Zip(inputs, _) => {
                inputs
                    .iter()
                    .for_each(|input| drop(self.walk(arena, input, probe)));
                None
            }
        }
    }

    fn operator(
        &mut self,
        arena: &Arena,
        param: ParamId,
        rows: RecordBatch,
        probe: &dyn Probe,
    ) -> Option<RecordBatch> {
        let spec = arena.spec(param);
        match &spec.kind {
            OpKind::Row { slot, expr } => {
                let rows = match spec.algebra {
                    Algebra::Decode => few(rows),
                    _ => rows,
                };
                let Evaluated {
                    values,
                    field,
                    failed,
                } = probe.evaluate(expr, &rows)?;
                let read: u64 = spec
                    .reads
                    .iter()
                    .filter_map(|slot| rows.column_by_name(arena.name(slot)))
                    .map(row_bytes)
                    .sum();
                let written = Log2::of(row_bytes(&values));
                let growth = written.times(Log2(-Log2::of(read).0));
                self.growth.insert(param, growth);
                let rows = with_column(&rows, arena.name(*slot), field, values)?;
                let sound: BooleanArray = (0..rows.num_rows())
                    .map(|row| Some(failed.binary_search(&row).is_err()))
                    .collect();
                filter_record_batch(&rows, &sound).ok()
            }
            OpKind::Filter { predicate } => {
                let truth = probe.evaluate(predicate, &rows)?.values;
                let truth = truth.as_boolean_opt()?;
                let kept = (0..truth.len()).filter(|&i| truth.is_valid(i) && truth.value(i));
                let kept: Vec<usize> = kept.collect();
                // The rule of succession: a predicate that a few rows all pass may still drop others.
                let part = (kept.len() + 1) as f64 / (truth.len() + 2) as f64;
                self.kept
                    .insert(param, Log2((libm::log2(part) * 1024.0) as i32));
                // Where next to nothing is left, what was dropped says more of sizes than nothing.
                if kept.len() < 4 {
                    return Some(rows);
                }
                let mask: BooleanArray = (0..truth.len())
                    .map(|row| Some(kept.binary_search(&row).is_ok()))
                    .collect();
                filter_record_batch(&rows, &mask).ok()
            }
            OpKind::Limit { .. }
            | OpKind::Shuffle { .. }
            | OpKind::Take { .. }
            | OpKind::Batch { .. } => Some(rows),
            OpKind::Flatten { .. } | OpKind::Lookup { .. } => None,
        }
    }
}

/// The first rows, up to [`DECODED`].
fn few(rows: RecordBatch) -> RecordBatch {
    let columns = rows.columns().iter();
    let each = columns.map(row_bytes).sum::<u64>().max(1);
    let count = (DECODED / each).max(4) as usize;
    rows.slice(0, count.min(rows.num_rows()))
}

/// Bytes of a row of a column.
fn row_bytes(values: &ArrayRef) -> u64 {
    let all = values.to_data().get_slice_memory_size().unwrap_or(0);
    (all / values.len().max(1)) as u64
}

fn batch(columns: Vec<(String, ArrayRef, Field)>, rows: usize) -> Option<RecordBatch> {
    let mut fields = Vec::with_capacity(columns.len());
    let mut values = Vec::with_capacity(columns.len());
    for (name, column, field) in columns {
        // A failed row has no value, whatever the plan says.
        fields.push(field.with_name(name).with_nullable(true));
        values.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), values, &options).ok()
}

/// The rows with a column replaced, or added.
fn with_column(
    rows: &RecordBatch,
    name: &str,
    field: Field,
    values: ArrayRef,
) -> Option<RecordBatch> {
    let schema = rows.schema();
    let pairs = schema.fields().iter().zip(rows.columns());
    let others = pairs.filter(|(field, _)| field.name() != name);
    let mut columns: Vec<(String, ArrayRef, Field)> = others
        .map(|(f, c)| (f.name().clone(), Arc::clone(c), f.as_ref().clone()))
        .collect();
    columns.push((name.to_owned(), values, field));
    batch(columns, rows.num_rows())
}
