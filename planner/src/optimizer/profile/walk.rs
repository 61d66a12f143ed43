//! Creates a profile by running a plan over a few rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{and, prep_null_mask_filter};
use arrow::datatypes::{Field, Int32Type};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;
use forebay_udfs::TensorType;
use forebay_udfs::facts::Algebra;
use forebay_udfs::row::ROW_COLUMN;
use forebay_udfs::width::fixed_bytes;

use super::late::{Late, ProfiledRows, few, only, sound};
use super::probe::Probe;
use super::sizes::Profile;
use super::table::{batch, row_bytes};
use crate::optimizer::arena::Arena;
use crate::optimizer::ids::ParamId;
use crate::optimizer::log2::Log2;
use crate::optimizer::spec::OpKind;
use crate::optimizer::tree::OperatorTree;
use crate::rows::columns::ColumnIndex;

/// With fewer rows than this left by a filter, the filter's input rows are used instead.
const FEW: usize = 4;

impl Profile {
    /// Profiles a plan by running it over rows of `probe`.
    pub fn of(arena: &Arena, tree: &OperatorTree, probe: &dyn Probe) -> Self {
        let mut profile = Self::default();
        profile.walk(arena, tree, probe);
        profile
    }

    /// Runs a plan over sampled rows, as far as possible. Returns the rows that the plan yields, or
    /// `None` if an operator cannot be run.
    fn walk(
        &mut self,
        arena: &Arena,
        tree: &OperatorTree,
        probe: &dyn Probe,
    ) -> Option<ProfiledRows> {
        match tree {
            OperatorTree::Scan(scan) => {
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
                batch(columns, rows.num_rows()).map(ProfiledRows::from)
            }
            OperatorTree::Op(param, input) => {
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
            OperatorTree::Cache(input) => self.walk(arena, input, probe),
            // The rows of the first input that has rows stand for the union.
            OperatorTree::Cat(inputs) => {
                let [a, b] = inputs
                    .each_ref()
                    .map(|input| self.walk(arena, input, probe));
                a.or(b)
            }
            OperatorTree::Mix(arms) => {
                let arms = arms.iter().map(|arm| self.walk(arena, arm, probe));
                // All arms are walked before one is taken, so that every arm is profiled.
                let arms: Vec<Option<ProfiledRows>> = arms.collect();
                arms.into_iter().flatten().next()
            }
        }
    }

    fn operator(
        &mut self,
        arena: &Arena,
        param: ParamId,
        rows: ProfiledRows,
        probe: &dyn Probe,
    ) -> Option<ProfiledRows> {
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
                sound(rows, name, evaluated).map(ProfiledRows::from)
            }
            OpKind::Filter { predicate } => {
                let rows = if rows.has(predicate) {
                    rows
                } else {
                    ProfiledRows::from(rows.at_hand(probe)?)
                };
                let mask = self.passes(param, predicate, &rows, probe)?;
                // With almost no rows left, the filter's input rows reveal more about sizes.
                if mask.true_count() < FEW {
                    return Some(rows);
                }
                let left = rows.clone().filtered(&mask)?;
                /// Minimum number of rows whose mean size is meaningful.
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

    /// Evaluates a predicate, records the fraction of rows that pass, and returns the mask of these
    /// rows.
    fn passes(
        &mut self,
        param: ParamId,
        predicate: &Expr,
        rows: &ProfiledRows,
        probe: &dyn Probe,
    ) -> Option<BooleanArray> {
        let read = only(&rows.batch, predicate)?;
        let truth = probe.evaluate(predicate, &read)?.values;
        let truth = truth.as_boolean_opt()?;
        let truth = match truth.null_count() {
            0 => truth.clone(),
            _ => prep_null_mask_filter(truth),
        };
        // Laplace's rule of succession: a predicate that a few rows all pass may still drop others.
        let part = (truth.true_count() + 1) as f64 / (truth.len() + 2) as f64;
        self.kept
            .insert(param, Log2((libm::log2(part) * 1024.0) as i32));
        Some(truth)
    }

    /// Profiles each column of a wide projection separately. Operators above that read these
    /// columns are not profiled.
    fn columns(
        &mut self,
        arena: &Arena,
        members: &[ParamId],
        rows: &ProfiledRows,
        probe: &dyn Probe,
    ) {
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

    /// Profiles several filters, each over all rows, and returns the rows that pass all of them. If
    /// almost no rows pass, returns all rows.
    fn filters(
        &mut self,
        arena: &Arena,
        members: &[ParamId],
        rows: ProfiledRows,
        probe: &dyn Probe,
    ) -> Option<ProfiledRows> {
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
        if passing.true_count() < FEW {
            Some(rows)
        } else {
            rows.filtered(&passing)
        }
    }

    /// Records how much larger the stored columns' values are among the rows that a filter keeps.
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

    /// Records the bytes that an operator writes per byte that it reads.
    fn grew(&mut self, arena: &Arena, param: ParamId, rows: &RecordBatch, written: u64) {
        let spec = arena.spec(param);
        let columns = spec.reads.iter();
        let columns = columns.filter_map(|slot| rows.column_by_name(arena.name(slot)));
        let read: u64 = columns.map(row_bytes).sum();
        let growth = Log2::of(written).times(Log2(-Log2::of(read).0));
        self.growth.insert(param, growth);
    }
}

/// Bytes per decoded row, according to the headers of the image files and without decoding.
fn decoded_bytes(
    expr: &Expr,
    field: &Field,
    rows: &ProfiledRows,
    probe: &dyn Probe,
) -> Option<u64> {
    /// Bytes of a variable-shape tensor's offset and shape.
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
