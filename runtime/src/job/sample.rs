//! Samples of stored rows, from which the optimiser learns sizes and selectivities.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use forebay_planner::optimizer::profile::{Evaluated, Probe, ROWS, first};
use forebay_planner::rows::{RowOp, RowPlan};
use forebay_udfs::draw::pass_key;
use forebay_udfs::hash::combine;
use forebay_udfs::row::{ROW_COLUMN, row_field};
use futures::TryStreamExt;

use crate::fragment::compile::Compiler;
use crate::fragment::evaluate::evaluate;
use crate::order::{RowLocation, Snapshot};
use crate::segment::StoredData;
use crate::source::{Access, Scan, Source};

/// Maximum number of splits that are read for a sample.
const SPLITS: u64 = 4;
/// Approximate maximum size of the sampled rows in bytes. Reading more delays the start of a run, and
/// the sizes of a few large images say enough about the others.
const BYTES: usize = 4 << 20;
/// Number of rows that are fetched first. Each further call fetches at most twice as many as the one
/// before.
const FIRST_ROWS: usize = 8;

/// Sample rows of each scan of a plan: the columns that the scan reads, and the hidden row column.
#[derive(Debug)]
pub struct Sample {
    rows: BTreeMap<u32, RecordBatch>,
}

impl Sample {
    /// Reads at most [`ROWS`] rows of each scan of `plan`, chosen by a hash. Rows that cannot be
    /// read are left out; the run will report them.
    pub async fn of(plan: &RowPlan) -> Self {
        let mut rows = BTreeMap::new();
        for scan in plan.scans() {
            if let RowOp::Scan { occurrence, .. } = &scan.op {
                match read(scan).await {
                    Ok(Some(batch)) => drop(rows.insert(*occurrence, batch)),
                    Ok(None) => {}
                    Err(error) => log::debug!("no profile of scan {occurrence}: {error}"),
                }
            }
        }
        Self { rows }
    }
}

/// An expression, compiled over the columns of a schema.
#[derive(Debug)]
pub struct Prepared {
    compiled: Arc<dyn PhysicalExpr>,
    field: Field,
}

impl Prepared {
    /// Evaluates the expression over `rows`; `None` if the evaluation fails with an error that is
    /// not the error of a row.
    pub fn evaluate(&self, rows: &RecordBatch) -> Option<Evaluated> {
        let (values, failures) = evaluate(&self.compiled, rows).ok()?;
        Some(Evaluated {
            values,
            field: self.field.clone(),
            failed: failures.into_keys().collect(),
        })
    }
}

/// Compiles `expr` over the columns of `schema`; `None` if `expr` cannot be compiled.
pub fn prepare(expr: &Expr, schema: &SchemaRef) -> Option<Prepared> {
    let compiled = Compiler::over(schema).compile(expr).ok()?;
    let field = compiled.return_field(schema).ok()?.as_ref().clone();
    Some(Prepared { compiled, field })
}

impl Probe for Sample {
    fn sample(&self, occurrence: u32) -> Option<RecordBatch> {
        self.rows.get(&occurrence).cloned()
    }

    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated> {
        // A declared function may load a model, start processes or have effects, so planning does not call it.
        if forebay_udfs::calls_declared(expr) {
            return None;
        }
        prepare(expr, rows.schema_ref())?.evaluate(rows)
    }

    fn field(&self, expr: &Expr, schema: &SchemaRef) -> Option<Field> {
        Some(prepare(expr, schema)?.field)
    }
}

/// Reads sample rows of `scan`; `None` if the scan has no rows.
async fn read(scan: &RowPlan) -> Result<Option<RecordBatch>> {
    let RowOp::Scan { projection, .. } = &scan.op else {
        return Ok(None);
    };
    let StoredData { snapshot, sources } = StoredData::of_plan(scan, &BTreeMap::new())?;
    let Some(source) = sources.first().filter(|_| snapshot.rows() > 0) else {
        return Ok(None);
    };
    let (numbers, batches) = match source.access() {
        Access::Direct => direct(&snapshot, source.as_ref(), projection).await?,
        Access::Staged => staged(&snapshot, source.as_ref(), projection).await?,
    };
    let schema = match batches.first() {
        Some(batch) => batch.schema(),
        None => Arc::new(source.schema().project(projection)?),
    };
    debug_assert!(schema.index_of(ROW_COLUMN).is_err());
    let place = |&number: &u64| Some(snapshot.row(number)?.at(number, pass_key(0, 0)));
    let places: Vec<RowLocation> = numbers.iter().filter_map(place).collect();
    let mut fields = schema.fields().to_vec();
    fields.push(row_field());
    let mut columns = concat_batches(&schema, &batches)?.columns().to_vec();
    columns.push(snapshot.row_ids(&places).to_array()?);
    let whole = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    Ok(Some(whole))
}

/// Reads rows spread over the whole source, until [`ROWS`] rows or about [`BYTES`] bytes were read.
/// Rows that cannot be read are left out. Returns the numbers of the rows in the snapshot, and the
/// rows.
async fn direct(
    snapshot: &Snapshot,
    source: &dyn Source,
    projection: &[usize],
) -> Result<(Vec<u64>, Vec<RecordBatch>)> {
    let mut numbers: Vec<u64> = Vec::with_capacity(ROWS);
    for i in 0..ROWS as u64 {
        let number = combine(i, 0) % snapshot.rows();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    let (mut read, mut batches, mut bytes) = (Vec::new(), Vec::new(), 0);
    let (mut rest, mut count) = (numbers.as_slice(), FIRST_ROWS);
    while !rest.is_empty() && bytes < BYTES {
        let (some, after) = rest.split_at(count.min(rest.len()));
        let rows = some.iter().filter_map(|&number| snapshot.row(number));
        let wanted: Vec<(u32, u64)> = rows.map(|row| snapshot.in_source(row)).collect();
        let (mut batch, failed) = source.fetch(&wanted, projection).await?;
        let is_sound = |row: &usize| failed.iter().all(|error| error.row != *row);
        let sound: Vec<usize> = (0..wanted.len()).filter(is_sound).collect();
        if sound.len() < wanted.len() {
            let indices = sound.iter().map(|&row| row as u32);
            batch = take_record_batch(&batch, &UInt32Array::from_iter_values(indices))?;
        }
        read.extend(sound.into_iter().map(|row| some[row]));
        bytes += batch.get_array_memory_size();
        batches.push(batch);
        // As many rows as fit if they are as large as those before, but no more than twice as many:
        // the next ones may be far larger.
        let each = (bytes / read.len().max(1)).max(1);
        count = (BYTES.saturating_sub(bytes) / each).clamp(1, 2 * some.len());
        rest = after;
    }
    Ok((read, batches))
}

/// Reads the first rows of at most [`SPLITS`] splits. Returns the numbers of these rows in the
/// snapshot, and the rows.
async fn staged(
    snapshot: &Snapshot,
    source: &dyn Source,
    projection: &[usize],
) -> Result<(Vec<u64>, Vec<RecordBatch>)> {
    let all = snapshot.splits.len() as u64;
    let mut splits: Vec<u64> = (0..SPLITS).map(|i| combine(i, 1) % all).collect();
    splits.sort_unstable();
    splits.dedup();
    let each = ROWS / splits.len();
    let request = Scan {
        projection: projection.to_vec(),
        prune: None,
        keep: None,
    };
    let (mut read, mut batches) = (Vec::new(), Vec::new());
    for split in splits {
        let split = &snapshot.splits[split as usize];
        let file = snapshot.file_in_source(split.file) as usize;
        let mut rows = source.read_split(file, split.split as usize, &request);
        let Some(stored) = rows.try_next().await? else {
            continue;
        };
        let count = each.min(stored.numbers.len());
        let offsets =
            { stored.numbers[..count].iter() }.map(|number| number.saturating_sub(split.first_row));
        read.extend(offsets.map(|offset| split.start + offset));
        batches.push(first(&stored.batch, count)?);
    }
    Ok((read, batches))
}
