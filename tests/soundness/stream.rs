//! The result of a run, and the comparison of two results, which is weaker in higher tiers.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use forebay_planner::clauses::Relax;
use forebay_planner::compile::Compiled;
use forebay_runtime::cache::Stores;
use forebay_runtime::run::{JobRun, RunConfig};
use forebay_runtime::stream::digest::RowsDigest;
use forebay_runtime::tail::{Batch, RunStats};

use crate::case::{Case, PIXELS};
use crate::common::{digest, keys};

/// Absolute and relative tolerance for floats in the tier `numeric`.
const TOLERANCE: f64 = 1e-5;
/// Half floats have a significand of 11 bits. A column of single precision may hold rounded half
/// floats, so the tolerance applies to all columns of a pipeline that computes with half floats.
const TOLERANCE_OF_HALVES: f64 = 4e-3;

/// The result of a run: all batches before the end or the error of the run, the error, and the
/// statistics.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The error because of which the run could not start; `None` if it started.
    pub(crate) refused: Option<String>,
    batches: Vec<Batch>,
    error: Option<String>,
    stats: RunStats,
}

impl Stream {
    /// Runs a compiled pipeline.
    pub(crate) async fn of(compiled: &Compiled, config: &RunConfig) -> Self {
        let mut stream = Self {
            refused: None,
            batches: Vec::new(),
            error: None,
            stats: RunStats::default(),
        };
        match JobRun::open(compiled, config, &Stores::default()).await {
            Err(error) => stream.refused = Some(error.to_string()),
            Ok(opened) => {
                let mut run = opened.start();
                while let Some(batch) = run.next().await {
                    match batch {
                        Ok(batch) => stream.batches.push(batch),
                        Err(error) => stream.error = Some(error.to_string()),
                    }
                }
                stream.stats = run.stats();
            }
        }
        stream
    }

    pub(crate) fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Returns true if some rows failed but did not end the run.
    pub(crate) fn settled_failures(&self) -> bool {
        !self.stats.failures.is_empty()
    }

    /// Returns the file and row number of each row of the stream, or the error that ended the run.
    pub(crate) fn rows_or_error(self) -> Result<Vec<(String, u64)>, String> {
        let rows = keys(&self.batches).into_iter();
        match self.error.or(self.refused) {
            None => Ok(rows.map(|(file, row, _)| (file, row)).collect()),
            Some(error) => Err(error),
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.batches.iter().map(|b| b.batch.num_rows()).sum()
    }

    /// Describes how `other`, the stream of a plan in the tier `tier`, violates the guarantee of
    /// the tier, compared to `self`, the stream of the written plan; `None` if it does not.
    pub(crate) fn differs(&self, other: &Self, tier: Relax, case: &Case) -> Option<String> {
        let exact = self.differs_exactly(other)?;
        let differs = match tier {
            Relax::Exact => return Some(exact),
            Relax::Numeric => self.differs_in_numbers(other, case),
            Relax::Order | Relax::Statistical => self.differs_in_rows(other, tier, case),
        };
        differs.map(|why| format!("{why} (exactly: {exact})"))
    }

    /// Describes how `other`, the stream of an exact plan, differs from `self`; `None` if the
    /// streams are equal.
    pub(crate) fn differs_exactly(&self, other: &Self) -> Option<String> {
        if let Some(why) = self.differs_in_errors(other) {
            return Some(why);
        }
        if keys(&self.batches) != keys(&other.batches) {
            let (a, b) = (keys(&self.batches), keys(&other.batches));
            return Some(format!("other rows\n  {a:?}\n  {b:?}"));
        }
        if digest(&self.batches) == digest(&other.batches) {
            return None;
        }
        Some(format!(
            "other values\n{}\n{}",
            text(&self.batches),
            text(&other.batches)
        ))
    }

    fn differs_in_errors(&self, other: &Self) -> Option<String> {
        let ends = |s: &Self| (s.refused.clone(), s.error.clone());
        if ends(self) != ends(other) {
            let (a, b) = (ends(self), ends(other));
            return Some(format!("another error\n  {a:?}\n  {b:?}"));
        }
        let counts = |s: &RunStats| (s.skipped, s.replaced, s.nulled);
        if counts(&self.stats) != counts(&other.stats)
            || self.stats.failures != other.stats.failures
        {
            return Some(format!(
                "other failed rows\n  {:?}\n  {:?}",
                self.stats, other.stats
            ));
        }
        None
    }

    fn differs_in_numbers(&self, other: &Self, case: &Case) -> Option<String> {
        if let Some(why) = self.differs_in_errors(other) {
            return Some(why);
        }
        let shape = |s: &Self| -> Vec<_> { s.batches.iter().map(|b| b.batch.num_rows()).collect() };
        if keys(&self.batches) != keys(&other.batches) || shape(self) != shape(other) {
            return Some("other rows or batches".to_owned());
        }
        let tolerance = if case.sql().contains("'f16'") {
            TOLERANCE_OF_HALVES
        } else {
            TOLERANCE
        };
        for (a, b) in self.batches.iter().zip(&other.batches) {
            let schema = a.batch.schema();
            if schema.fields() != b.batch.schema().fields() {
                return Some("another schema".to_owned());
            }
            let columns = a.batch.columns().iter().zip(b.batch.columns());
            for (field, (a, b)) in schema.fields().iter().zip(columns) {
                if !close(a, b, tolerance) {
                    return Some(format!("column {} is not close", field.name()));
                }
            }
        }
        None
    }

    /// Compares the rows of two streams as multisets. The tier `order` compares all values,
    /// `statistical` all but those computed from pixels.
    fn differs_in_rows(&self, other: &Self, tier: Relax, case: &Case) -> Option<String> {
        if (self.failed(), &self.refused) != (other.failed(), &other.refused) {
            let errors = (&self.error, &other.error, &other.refused);
            return Some(format!("one of them fails: {errors:?}"));
        }
        // The order of the rows determines the row that ends a failing run and the rows before it,
        // so runs with different orders have nothing more to compare.
        if self.failed() {
            return None;
        }
        let failures = |s: &Self| {
            let rows = s.stats.failures.iter().map(|f| (f.file.clone(), f.row));
            let mut rows: Vec<_> = rows.collect();
            rows.sort();
            rows
        };
        if failures(self) != failures(other) {
            let both = (failures(self), failures(other));
            return Some(format!("other failed rows: {both:?}"));
        }
        let (a, b) = (self.counted(tier, case), other.counted(tier, case));
        (a != b).then(|| "another multiset of rows".to_owned())
    }

    fn counted(&self, tier: Relax, case: &Case) -> BTreeMap<String, usize> {
        let mut counted = BTreeMap::new();
        for batch in &self.batches {
            let schema = batch.batch.schema();
            let compared = |name: &str| tier < Relax::Statistical || !name.starts_with(PIXELS);
            let columns = schema.fields().iter().enumerate();
            let columns = columns.filter(|(_, f)| compared(f.name())).map(|(i, _)| i);
            let columns: Vec<usize> = columns.collect();
            let values = batch.batch.project(&columns).unwrap();
            for (i, key) in batch.keys().enumerate() {
                let mut digest = RowsDigest::default();
                digest.update(&values.slice(i, 1)).unwrap();
                let epoch = if case.is_continuous() { 0 } else { batch.epoch };
                let row = format!("{epoch} {key:?} {}", digest.finish());
                *counted.entry(row).or_insert(0) += 1;
            }
        }
        // The row that replaces a failed row depends on the batch, so duplicates are ignored.
        if case.repeats_rows() {
            counted.values_mut().for_each(|n| *n = 1);
        }
        counted
    }
}

/// Returns true if two columns have the same values. Floats may differ by the tolerance.
fn close(a: &ArrayRef, b: &ArrayRef, tolerance: f64) -> bool {
    if a.data_type() != b.data_type() || a.len() != b.len() {
        return false;
    }
    match a.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let floats = |x: &ArrayRef| cast(x, &DataType::Float64).unwrap();
            let (a, b) = (floats(a), floats(b));
            let (a, b) = (
                a.as_primitive::<Float64Type>(),
                b.as_primitive::<Float64Type>(),
            );
            let near = |x: f64, y: f64| {
                x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= tolerance * x.abs().max(1.0)
            };
            a.iter().zip(b).all(|pair| match pair {
                (Some(x), Some(y)) => near(x, y),
                (x, y) => x == y,
            })
        }
        DataType::List(_) => {
            let (a, b) = (a.as_list::<i32>(), b.as_list::<i32>());
            (0..a.len()).all(|i| {
                a.is_null(i) == b.is_null(i)
                    && (a.is_null(i) || close(&a.value(i), &b.value(i), tolerance))
            })
        }
        DataType::FixedSizeList(..) => {
            let (a, b) = (a.as_fixed_size_list(), b.as_fixed_size_list());
            (0..a.len()).all(|i| {
                a.is_null(i) == b.is_null(i)
                    && (a.is_null(i) || close(&a.value(i), &b.value(i), tolerance))
            })
        }
        DataType::Struct(_) => {
            let (x, y) = (a.as_struct(), b.as_struct());
            let mut columns = x.columns().iter().zip(y.columns());
            // Null buffers may differ if neither of them has a null.
            (0..a.len()).all(|i| a.is_null(i) == b.is_null(i))
                && columns.all(|(a, b)| close(a, b, tolerance))
        }
        _ => a.as_ref() == b.as_ref(),
    }
}

/// Formats batches as a table of at most 3,000 characters.
fn text(batches: &[Batch]) -> String {
    let all = batches.iter().map(|b| b.batch.clone()).collect::<Vec<_>>();
    match arrow::util::pretty::pretty_format_batches(&all) {
        Ok(table) => table.to_string().chars().take(3000).collect(),
        Err(error) => error.to_string(),
    }
}
