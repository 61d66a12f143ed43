//! Creates a profile by running the operators of a plan over a few rows.

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

/// Minimum number of rows to continue with after a filter. If a filter keeps fewer, the operators
/// above are run over the filter's input rows.
const FEW: usize = 4;

impl Profile {
    /// Profiles the plan `tree` by running its operators over rows that `probe` provides.
    pub fn of(arena: &Arena, tree: &OperatorTree, probe: &dyn Probe) -> Self {
        let mut profile = Self::default();
        profile.walk(arena, tree, probe);
        profile
    }

    /// Runs the operators of `tree` over sample rows, and records measurements. Returns the rows
    /// that `tree` yields; `None` if an operator cannot be run, in which case only operators below
    /// this operator are recorded.
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
            // The first input that yields rows represents the union.
            OperatorTree::Cat(inputs) => {
                let [a, b] = inputs
                    .each_ref()
                    .map(|input| self.walk(arena, input, probe));
                a.or(b)
            }
            OperatorTree::Mix(arms) => {
                let arms = arms.iter().map(|arm| self.walk(arena, arm, probe));
                // All arms are run, although only the rows of the first arm that yields rows are
                // returned, so that every arm is profiled.
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
                // If the filter keeps almost no rows, the sizes of its input rows are a better
                // estimate.
                if mask.true_count() < FEW {
                    return Some(rows);
                }
                let left = rows.clone().filtered(&mask)?;
                /// Minimum number of rows whose mean size is recorded, since the mean of fewer rows
                /// is too uncertain.
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

    /// Evaluates `predicate`, the condition of the filter `param`, and records the fraction of
    /// `rows` for which `predicate` is true. Returns the mask of these rows.
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
        // Laplace's rule of succession: a predicate that is true for all of a few rows may still be
        // false for other rows.
        let part = (truth.true_count() + 1) as f64 / (truth.len() + 2) as f64;
        self.kept
            .insert(param, Log2((libm::log2(part) * 1024.0) as i32));
        Some(truth)
    }

    /// Profiles each operator in `members` over `rows`. The operators compute the columns of a wide
    /// projection, which are not added to `rows`, so operators above that read these columns are
    /// not profiled.
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

    /// Profiles each filter in `members` over all of `rows`, and returns the rows that pass every
    /// filter. If fewer than [`FEW`] rows pass every filter, returns all rows.
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

    /// Records, for each stored column, its mean bytes per row in `left`, the rows that the filter
    /// `param` keeps, divided by its mean bytes per row in `all`.
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

    /// Records the growth of the operator `param`: `written`, the bytes that the operator writes
    /// per row, divided by the mean bytes that the operator reads per row.
    fn grew(&mut self, arena: &Arena, param: ParamId, rows: &RecordBatch, written: u64) {
        let spec = arena.spec(param);
        let columns = spec.reads.iter();
        let columns = columns.filter_map(|slot| rows.column_by_name(arena.name(slot)));
        let read: u64 = columns.map(row_bytes).sum();
        let growth = Log2::of(written).times(Log2(-Log2::of(read).0));
        self.growth.insert(param, growth);
    }
}

/// Mean bytes of a decoded image, computed from the sizes in the headers of the image files,
/// without decoding. `expr` is the call that decodes, and `field` is its type.
fn decoded_bytes(
    expr: &Expr,
    field: &Field,
    rows: &ProfiledRows,
    probe: &dyn Probe,
) -> Option<u64> {
    /// Bytes that Arrow stores per variable-shape tensor besides its elements: a 4-byte offset, and
    /// the shape as three 4-byte numbers.
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
