//! A profile: what operators do to the sizes and numbers of a few rows.
//!
//! Types say how large a resized image is, not how large a photo of a folder is, nor how many rows a
//! predicate keeps. Where something depends on it, the written plan is run over a few rows, chosen by
//! hash, operator by operator. A profile holds no times, so the same data give the same plan.

mod late;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{and, prep_null_mask_filter};
use arrow::datatypes::{Field, Int32Type, Schema, SchemaRef};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use forebay_udfs::TensorType;
use forebay_udfs::facts::Algebra;
use forebay_udfs::row::ROW_COLUMN;
use forebay_udfs::width::fixed_bytes;

pub use self::late::first;
use self::late::{Late, Rows, few, only, sound};
use super::arena::{Arena, ParamId};
use super::facts::Log2;
use super::slots::Slot;
use super::spec::OpKind;
use super::tree::Tree;
use crate::rows::columns::ColumnIndex;
use crate::rows::{RowOp, RowPlan};

/// Rows of a profile at most.
pub const ROWS: usize = 64;

/// Rows that are next to nothing.
const FEW: usize = 4;

/// Gives rows, and evaluates expressions over them.
pub trait Probe: fmt::Debug + Send + Sync {
    /// Some stored rows of a scan, with the hidden row column. `None` where there are none.
    fn sample(&self, occurrence: u32) -> Option<RecordBatch>;

    /// The values of an expression. `None` where it cannot be evaluated here.
    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated>;

    /// The type of an expression's values, with its extension. `None` where only evaluating tells.
    fn field(&self, _expr: &Expr, _schema: &SchemaRef) -> Option<Field> {
        None
    }
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
    /// Bytes of a stored column's row among those that a filter keeps, beside those of a row before it.
    pub narrowed: HashMap<(ParamId, Slot), Log2>,
}

impl Profile {
    /// Profiles a plan.
    pub fn of(arena: &Arena, tree: &Tree, probe: &dyn Probe) -> Self {
        let mut profile = Self::default();
        profile.walk(arena, tree, probe);
        profile
    }

    /// Runs a plan over the sample, as far as that goes.
    fn walk(&mut self, arena: &Arena, tree: &Tree, probe: &dyn Probe) -> Option<Rows> {
        match tree {
            Tree::Scan(scan) => {
                let spec = arena.scan(*scan);
                let rows = probe.sample(spec.occurrence)?;
                let mut columns: Vec<(String, ArrayRef, Field)> = Vec::new();
                let schema = spec.source.schema();
                let read = rows.schema();
                let read = ColumnIndex::of(&read);
                for &(index, slot) in &spec.columns {
                    let field = schema.field(index).clone();
                    let values = rows.column(read.index_of(field.name()).ok()?);
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
                batch(columns, rows.num_rows()).map(Rows::from)
            }
            Tree::Op(param, input) => {
                let rows = self.walk(arena, input, probe)?;
                match &arena.spec(*param).kind {
                    OpKind::Rows(members) => {
                        self.columns(arena, members, &rows, probe);
                        Some(rows)
                    }
                    OpKind::Filters(members) => self.filters(arena, members, rows, probe),
                    _ => self.operator(arena, *param, rows, probe),
                }
            }
            Tree::Cache(input) => self.walk(arena, input, probe),
            // Either input's rows stand for all.
            Tree::Cat(inputs) => {
                let [a, b] = inputs
                    .each_ref()
                    .map(|input| self.walk(arena, input, probe));
                a.or(b)
            }
            Tree::Mix(arms) => {
                let arms = arms.iter().map(|arm| self.walk(arena, arm, probe));
                // All of them are looked at.
                let arms: Vec<Option<Rows>> = arms.collect();
                arms.into_iter().flatten().next()
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
        rows: Rows,
        probe: &dyn Probe,
    ) -> Option<Rows> {
        let spec = arena.spec(param);
        match &spec.kind {
            OpKind::Row { slot, expr } => {
                let name = arena.name(*slot);
                let decodes = spec.algebra == Algebra::Decode;
                if let Some(field) = probe.field(expr, &rows.schema_of(expr)) {
                    let told = fixed_bytes(field.data_type()).is_some();
                    let header = || decoded_bytes(expr, &field, &rows, probe);
                    let decoded = decodes.then(header).flatten();
                    if let Some(written) = decoded {
                        self.grew(arena, param, &rows.batch, written);
                    }
                    if told || decoded.is_some() {
                        return Some(rows.with_late(Late {
                            name: name.to_owned(),
                            expr: expr.as_ref().clone(),
                            field,
                            decodes,
                        }));
                    }
                }
                let rows = rows.at_hand(probe)?;
                let rows = if decodes { few(rows) } else { rows };
                let evaluated = probe.evaluate(expr, &only(&rows, expr)?)?;
                self.grew(arena, param, &rows, row_bytes(&evaluated.values));
                sound(rows, name, evaluated).map(Rows::from)
            }
            OpKind::Filter { predicate } => {
                let rows = match rows.has(predicate) {
                    true => rows,
                    false => Rows::from(rows.at_hand(probe)?),
                };
                let mask = self.passes(param, predicate, &rows, probe)?;
                // Where next to nothing is left, what was dropped says more of sizes than nothing.
                if mask.true_count() < FEW {
                    return Some(rows);
                }
                let left = rows.clone().filtered(&mask)?;
                /// Rows whose mean size is worth something.
                const ENOUGH: usize = 8;
                if mask.true_count() >= ENOUGH {
                    self.narrowed(arena, param, &rows.batch, &left.batch);
                }
                Some(left)
            }
            OpKind::Limit { .. }
            | OpKind::Shuffle { .. }
            | OpKind::Take { .. }
            | OpKind::Batch { .. } => Some(rows),
            OpKind::Flatten { .. }
            | OpKind::Lookup { .. }
            | OpKind::Rows(_)
            | OpKind::Filters(_) => None,
        }
    }

    /// The rows that pass a predicate; notes how many do.
    fn passes(
        &mut self,
        param: ParamId,
        predicate: &Expr,
        rows: &Rows,
        probe: &dyn Probe,
    ) -> Option<BooleanArray> {
        let read = only(&rows.batch, predicate)?;
        let truth = probe.evaluate(predicate, &read)?.values;
        let truth = truth.as_boolean_opt()?;
        let truth = match truth.null_count() {
            0 => truth.clone(),
            _ => prep_null_mask_filter(truth),
        };
        // The rule of succession: a predicate that a few rows all pass may still drop others.
        let part = (truth.true_count() + 1) as f64 / (truth.len() + 2) as f64;
        self.kept
            .insert(param, Log2((libm::log2(part) * 1024.0) as i32));
        Some(truth)
    }

    /// Profiles the columns of a wide projection, each by itself: what reads them has no profile.
    fn columns(&mut self, arena: &Arena, members: &[ParamId], rows: &Rows, probe: &dyn Probe) {
        for &member in members {
            let OpKind::Row { expr, .. } = &arena.spec(member).kind else {
                continue;
            };
            let field = probe.field(expr, &rows.schema_of(expr));
            let is_told = field.is_some_and(|field| fixed_bytes(field.data_type()).is_some());
            if is_told || !rows.has(expr) {
                continue;
            }
            let read = only(&rows.batch, expr);
            let evaluated = read.and_then(|read| Some((probe.evaluate(expr, &read)?, read)));
            if let Some((evaluated, read)) = evaluated {
                self.grew(arena, member, &read, row_bytes(&evaluated.values));
            }
        }
    }

    /// Profiles several filters, each over all rows; and the rows that pass all of them.
    fn filters(
        &mut self,
        arena: &Arena,
        members: &[ParamId],
        rows: Rows,
        probe: &dyn Probe,
    ) -> Option<Rows> {
        let mut passing = BooleanArray::from(vec![true; rows.batch.num_rows()]);
        for &member in members {
            let OpKind::Filter { predicate } = &arena.spec(member).kind else {
                continue;
            };
            if rows.has(predicate)
                && let Some(mask) = self.passes(member, predicate, &rows, probe)
            {
                passing = and(&passing, &mask).ok()?;
            }
        }
        match passing.true_count() < FEW {
            true => Some(rows),
            false => rows.filtered(&passing),
        }
    }

    /// Notes how much larger the values of stored columns are that a filter keeps.
    fn narrowed(&mut self, arena: &Arena, param: ParamId, all: &RecordBatch, left: &RecordBatch) {
        let schema = all.schema();
        let columns = ColumnIndex::of(&schema);
        for &slot in self.stored.keys() {
            let Ok(index) = columns.index_of(arena.name(slot)) else {
                continue;
            };
            if fixed_bytes(schema.field(index).data_type()).is_none() {
                let bytes = |rows: &RecordBatch| Log2::of(row_bytes(rows.column(index)));
                self.narrowed
                    .insert((param, slot), bytes(left).over(bytes(all)));
            }
        }
    }

    /// Notes how many bytes an operator writes a row of what it reads.
    fn grew(&mut self, arena: &Arena, param: ParamId, rows: &RecordBatch, written: u64) {
        let spec = arena.spec(param);
        let columns = spec.reads.iter();
        let columns = columns.filter_map(|slot| rows.column_by_name(arena.name(slot)));
        let read: u64 = columns.map(row_bytes).sum();
        let growth = Log2::of(written).times(Log2(-Log2::of(read).0));
        self.growth.insert(param, growth);
    }
}

/// Bytes of a decoded row, as the headers of the files tell: then none has to be decoded.
fn decoded_bytes(expr: &Expr, field: &Field, rows: &Rows, probe: &dyn Probe) -> Option<u64> {
    /// A variable-shape tensor's offset and shape.
    const SHAPE: u64 = 4 + 3 * 4;
    let Expr::ScalarFunction(call) = expr else {
        return None;
    };
    let file = call.args.first().filter(|file| rows.has(file))?;
    let tensor = TensorType::from_field(field).ok().flatten()?;
    let side = |name: &str| {
        let func = forebay_udfs::functions()
            .into_iter()
            .find(|f| f.name() == name)?;
        let args = vec![file.clone()];
        let call = Expr::ScalarFunction(ScalarFunction { func, args });
        let values = probe.evaluate(&call, &only(&rows.batch, &call)?)?.values;
        values.as_primitive_opt::<Int32Type>().cloned()
    };
    let (width, height) = (side("image_width")?, side("image_height")?);
    let pixels = width
        .iter()
        .zip(&height)
        .filter_map(|(w, h)| Some(w? as u64 * h? as u64));
    let (count, total) = pixels.fold((0_u64, 0_u64), |(n, sum), p| (n + 1, sum.saturating_add(p)));
    let each = total.checked_div(count)?;
    let pixel = (tensor.channels * tensor.dtype.bytes()) as u64;
    Some(each.saturating_mul(pixel).saturating_add(SHAPE))
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
