//! A planner probe that also times the calls of one function.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF, lit};
use forebay_planner::optimizer::profile::{Evaluated, Probe};
use forebay_runtime::run::{Prepared, Sample, prepare};
use forebay_udfs::{Dtype, TensorType, is_written_out};

use super::effort::Effort;
use super::fit::Measured;
use crate::error::{Result, engine};

/// Maximum number of sample rows that are timed. For fast functions, these rows are repeated.
const ROWS: usize = 16;
/// Number of measurements. The median is used, since the fastest measurements are faster than the
/// function ever is within a running pipeline.
const RUNS: usize = 7;
/// Time after which no further measurement of an expression starts.
const LONG_ENOUGH: Duration = Duration::from_millis(400);
/// Duration that a measurement should have at least, given the clock's resolution and the fixed
/// work per evaluation.
const WORTHWHILE: Duration = Duration::from_millis(4);
/// Maximum size, in bytes, of the rows that are repeated to make a measurement long enough.
const MAX_BYTES: usize = 64 << 20;
/// Maximum size, in bytes, of an image that is timed. Threads do not reuse larger buffers, and
/// allocating a larger buffer takes longer than many functions take.
const MAX_IMAGE: usize = 1 << 20;

/// Measured times of a function's calls. In these measurements, the values of an image are its
/// elements (pixels times channels).
#[derive(Debug, Default, Clone)]
pub(super) struct Timings {
    /// Times of calls over `u8` images, and over values other than images.
    pub(super) bytes: Vec<Measured>,
    /// Times of calls over images with float elements.
    pub(super) floats: Vec<Measured>,
}

/// A probe that gives the planner sample rows, evaluates expressions over these rows, and times the
/// calls of one function on one thread.
///
/// An image function is timed as part of a program of fused image calls, since image functions
/// always run in such programs. The time of the function is the time of the program that ends with
/// the function, minus the time of the same program without the function. A resize to a single
/// pixel is appended to both programs, so that neither program writes images to a column. For a
/// function that runs while images are written to a column, it is not appended, since most programs
/// end with such a function.
#[derive(Debug)]
pub(super) struct Timed {
    sample: Sample,
    /// Name of the function to time.
    function: &'static str,
    effort: Effort,
    timings: Mutex<Timings>,
    pool: rayon::ThreadPool,
    functions: Vec<Arc<ScalarUDF>>,
}

impl Timed {
    pub(super) fn new(sample: Sample, function: &'static str, effort: Effort) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let pool = pool.map_err(|e| engine(datafusion::common::exec_datafusion_err!("{e}")))?;
        Ok(Self {
            sample,
            function,
            effort,
            timings: Mutex::default(),
            pool,
            functions: forebay_udfs::functions(),
        })
    }

    /// Returns a copy of the measurements so far.
    pub(super) fn timings(&self) -> Timings {
        self.timings.lock().map(|of| of.clone()).unwrap_or_default()
    }

    fn note(&self, floats: bool, measured: Measured) {
        if let Ok(mut timings) = self.timings.lock() {
            if floats {
                timings.floats.push(measured)
            } else {
                timings.bytes.push(measured)
            }
        }
    }

    fn time(&self, expr: &Expr, last: bool, rows: &RecordBatch, evaluated: &Evaluated) {
        let count = rows.num_rows();
        let written = values_of(&evaluated.values, tensor(&evaluated.field)) / count;
        let columns = read_columns(expr, rows);
        let [(image, column, Some(tensor))] = columns.as_slice() else {
            let each = columns.iter().map(|(_, c, tensor)| values_of(c, *tensor));
            let read = each.sum::<usize>() / count;
            let whole = self
                .program(self.to_pixel(expr), rows)
                .or_else(|| self.program(Some(expr.clone()), rows));
            if let Some(whole) = whole {
                let timing = self.compare(&whole, None, rows);
                self.note(false, timing.of(read, written));
            }
            return;
        };
        let image = Expr::from(Column::new_unqualified(image));
        let read = values_of(column, Some(*tensor)) / count;
        let inputs = if last {
            self.of_one_size(&image, tensor.channels)
        } else {
            vec![(image.clone(), read)]
        };
        for (input, read) in inputs {
            let floats = self.call("to_float", input.clone(), []);
            for (floats, before) in [(tensor.dtype.is_float(), Some(input)), (true, floats)] {
                let element = if floats { Dtype::F32.bytes() } else { 1 };
                let Some(before) = before.filter(|_| read * element <= MAX_IMAGE) else {
                    continue;
                };
                let after = replace(expr, &image, &before);
                let [after, before] = if last {
                    [Some(after), Some(before)]
                } else {
                    [self.to_pixel(&after), self.to_pixel(&before)]
                };
                let programs = self.program(after, rows).zip(self.program(before, rows));
                if let Some((after, before)) = programs {
                    let written = if last { read } else { written };
                    self.note(
                        floats,
                        self.compare(&after, Some(&before), rows).of(read, written),
                    );
                }
            }
        }
    }

    /// Returns expressions that resize `image` to fixed sizes, with the number of elements of each
    /// resized image.
    fn of_one_size(&self, image: &Expr, channels: usize) -> Vec<(Expr, usize)> {
        let sized = [112_i64, 224].map(|side| {
            let made = self.call("resize", image.clone(), [lit(side), lit(side)])?;
            Some((made, side as usize * side as usize * channels))
        });
        sized.into_iter().flatten().collect()
    }

    /// Resizes `image` to one of its pixels, twice. Each resize swaps the two image buffers of the
    /// thread, and after two of them the buffers are in their original order. A crop would not do:
    /// it would be the only part of the image that is decoded.
    fn to_pixel(&self, image: &Expr) -> Option<Expr> {
        let pixel = [lit(1_i64), lit(1_i64), lit("nearest")];
        let resize = |image: Expr| self.call("resize", image, pixel.clone());
        resize(resize(image.clone())?)
    }

    fn call<const N: usize>(&self, name: &str, image: Expr, constants: [Expr; N]) -> Option<Expr> {
        let func = Arc::clone(self.functions.iter().find(|f| f.name() == name)?);
        let args = [image].into_iter().chain(constants).collect();
        Some(Expr::ScalarFunction(ScalarFunction { func, args }))
    }

    /// Prepares `expr` with its image calls fused into one program; `None` if `expr` is `None` or
    /// cannot be typed.
    fn program(&self, expr: Option<Expr>, rows: &RecordBatch) -> Option<Prepared> {
        let fused = forebay_udfs::fuse(expr?).ok()?.data;
        prepare(&fused, rows.schema_ref())
    }

    /// Times evaluations of `whole` over `rows`. If `less` is present, its evaluations are timed in
    /// alternation with those of `whole`.
    fn compare(&self, whole: &Prepared, less: Option<&Prepared>, rows: &RecordBatch) -> Timing {
        let run = |program: &Prepared, rows: &RecordBatch| {
            let start = Instant::now();
            drop(self.pool.install(|| program.evaluate(rows)));
            start.elapsed()
        };
        let first = run(whole, rows).min(run(whole, rows));
        let rows = repeated(rows, first);
        let begun = Instant::now();
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..self.effort.runs(RUNS) {
            times[0].push(run(whole, &rows));
            times[1].push(less.map_or(Duration::ZERO, |less| run(less, &rows)));
            if begun.elapsed() > self.effort.patience(LONG_ENOUGH) {
                break;
            }
        }
        let each = |mut times: Vec<Duration>| {
            times.sort_unstable();
            let median = times.get(times.len() / 2).map_or(0, Duration::as_nanos);
            median as f64 * 1000.0 / rows.num_rows() as f64
        };
        let [whole, less] = times.map(each);
        Timing { whole, less }
    }
}

/// Time per row of a program (`whole`), and of the program without its last function (`less`), in
/// picoseconds.
#[derive(Debug, Clone, Copy)]
struct Timing {
    whole: f64,
    less: f64,
}

impl Timing {
    fn of(self, read: usize, written: usize) -> Measured {
        /// Assumed relative difference between two timings of one program.
        const NOISE: f64 = 0.03;
        let ps = (self.whole - self.less).max(0.0);
        Measured {
            read: read as f64,
            written: written as f64,
            ps,
            doubt: self.whole * NOISE,
        }
    }
}

impl Probe for Timed {
    fn sample(&self, occurrence: u32) -> Option<RecordBatch> {
        let rows = self.sample.sample(occurrence)?;
        Some(rows.slice(0, rows.num_rows().min(ROWS)))
    }

    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated> {
        let evaluated = self.sample.evaluate(expr, rows)?;
        let call = our_function(expr).filter(|call| call.func.name() == self.function);
        if let (Some(call), 1..) = (call, rows.num_rows()) {
            self.time(expr, is_written_out(&call), rows, &evaluated);
        }
        Some(evaluated)
    }
}

/// Repeats `rows` so often that an evaluation over the result takes about [`WORTHWHILE`], or until
/// the result has [`MAX_BYTES`]. `taken` is the time of an evaluation over `rows`.
fn repeated(rows: &RecordBatch, taken: Duration) -> RecordBatch {
    let times = WORTHWHILE.as_nanos() / taken.as_nanos().max(1);
    let room = MAX_BYTES / bytes_of(rows.columns()).max(1);
    let times = usize::try_from(times).unwrap_or(room).min(room).max(1);
    let all = std::iter::repeat_n(rows, times);
    concat_batches(rows.schema_ref(), all).unwrap_or_else(|_| rows.clone())
}

/// Returns the name and values of each column that `expr` reads, except the hidden row column, and
/// the tensor type of a tensor column.
fn read_columns(expr: &Expr, rows: &RecordBatch) -> Vec<(String, ArrayRef, Option<TensorType>)> {
    let names = expr.column_refs();
    let visible = names
        .iter()
        .filter(|c| c.name != forebay_udfs::row::ROW_COLUMN);
    let columns = visible.filter_map(|c| {
        let index = rows.schema_ref().index_of(&c.name).ok()?;
        let field = rows.schema_ref().field(index);
        Some((
            c.name.clone(),
            Arc::clone(rows.column(index)),
            tensor(field),
        ))
    });
    columns.collect()
}

fn replace(expr: &Expr, old: &Expr, new: &Expr) -> Expr {
    let replaced = expr.clone().transform_up(|e| {
        if e == *old {
            Ok(Transformed::yes(new.clone()))
        } else {
            Ok(Transformed::no(e))
        }
    });
    replaced.map_or_else(|_| expr.clone(), |replaced| replaced.data)
}

fn tensor(field: &arrow::datatypes::Field) -> Option<TensorType> {
    TensorType::from_field(field).ok().flatten()
}

/// Returns the number of elements of an image column, or the number of bytes of any other column.
fn values_of(column: &ArrayRef, tensor: Option<TensorType>) -> usize {
    let element = tensor.map_or(1, |tensor| tensor.dtype.bytes());
    bytes_of(std::slice::from_ref(column)) / element
}

/// Returns the only call of a Forebay function in `expr`; `None` if there is no such call or more
/// than one.
fn our_function(expr: &Expr) -> Option<ScalarFunction> {
    let mut found = Vec::new();
    let visited = expr.apply(|e| {
        if let Expr::ScalarFunction(call) = e
            && forebay_udfs::facts_of(call.func.name()).is_some()
        {
            found.push(call.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match (visited, found.len()) {
        (Ok(_), 1) => found.pop(),
        _ => None,
    }
}

/// Returns the total size of the columns, in bytes.
pub(super) fn bytes_of(columns: &[ArrayRef]) -> usize {
    let sizes = columns.iter();
    sizes
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0))
        .sum()
}
