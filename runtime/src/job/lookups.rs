//! The right sides of lookups. Each right side is read once when a pipeline is opened, even if
//! parts of the plan are opened several times to resolve limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::datatypes::DataType;
use datafusion::common::{
    Result, exec_datafusion_err, exec_err, internal_datafusion_err, internal_err,
};
use forebay_planner::rows::membership::visit_stream;
use forebay_planner::rows::{RowOp, RowPlan};
use futures::TryStreamExt;

use super::open_plan::{OpenPlan, RightSides};
use crate::fragment::compile::{Compiler, key_types};
use crate::fragment::concat::{concatenated, is_oversized};
use crate::fragment::evaluate::evaluate;
use crate::fragment::lookup::LookupTable;
use crate::segment::{Env, SegmentContext, StoredData, stored_order};

/// The right side of a lookup: its rows in memory, and the stored data from which they were
/// computed.
#[derive(Debug)]
struct RightSide {
    table: Arc<LookupTable>,
    data: Vec<Arc<StoredData>>,
}

/// The right sides of a plan's lookups.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Right sides of lookups, by occurrence number of the first scan of the right side. A scan
    /// belongs to at most one right side.
    by_scan: BTreeMap<u32, RightSide>,
}

impl Lookups {
    /// Computes the rows of `right`, the opened right side of `lookup`, and adds them to the map.
    ///
    /// # Errors
    /// Fails if a row of the right side fails, or if a key occurs twice.
    pub(crate) async fn add(
        &mut self,
        lookup: &RowPlan,
        right: &OpenPlan,
        env: &Env,
    ) -> Result<()> {
        let table = Arc::new(lookup_table(lookup, right, env).await?);
        let data = right.all_data().cloned().collect();
        let side = RightSide { table, data };
        self.by_scan.insert(first_scan(lookup)?, side);
        Ok(())
    }

    /// Returns the tables of the lookups in `plan`, which may be a part of a larger plan, in
    /// evaluation order, and the data from which the tables were computed.
    ///
    /// # Errors
    /// Fails if [`add`](Self::add) was not called for a lookup in `plan`.
    pub(crate) fn of(&self, plan: &RowPlan) -> Result<RightSides> {
        let (mut tables, mut data) = (Vec::new(), Vec::new());
        for lookup in lookups_of(plan) {
            let side = self.by_scan.get(&first_scan(lookup)?);
            let side = side.ok_or_else(|| {
                internal_datafusion_err!("the right side of a lookup was not read")
            })?;
            tables.push(Arc::clone(&side.table));
            data.extend(side.data.iter().cloned());
        }
        Ok((tables, data))
    }
}

/// Returns the lookups on the path from stored rows to the output, in evaluation order. Lookups
/// inside the right side of another lookup are left out.
pub(super) fn lookups_of(plan: &RowPlan) -> Vec<&RowPlan> {
    let mut lookups = Vec::new();
    visit_stream(plan, &mut |node| {
        if matches!(node.op, RowOp::Lookup { .. }) {
            lookups.push(node);
        }
    });
    lookups
}

/// Returns the occurrence number of the first scan in the right side of `lookup`.
fn first_scan(lookup: &RowPlan) -> Result<u32> {
    let scans = lookup.inputs[1].scans();
    match scans.first().map(|scan| &scan.op) {
        Some(RowOp::Scan { occurrence, .. }) => Ok(*occurrence),
        _ => internal_err!("the right side of a lookup has no scan"),
    }
}

async fn lookup_table(lookup: &RowPlan, right: &OpenPlan, env: &Env) -> Result<LookupTable> {
    let RowOp::Lookup { on, .. } = &lookup.op else {
        return internal_err!("not a lookup");
    };
    let plan = &lookup.inputs[1];
    let snapshot = &right.data.snapshot;
    let splits = 0..snapshot.splits.len() as u32;
    let context = SegmentContext::new(&right.data, &right.reader, env);
    let batches: Vec<_> = stored_order(&context, splits, 0).try_collect().await?;
    let key_types = key_types(lookup)?;
    let mut keys = vec![Vec::new(); on.len()];
    let mut columns = vec![Vec::new(); plan.schema.fields().len()];
    for batch in &batches {
        if let Some((row, errors)) = batch.errors.first_key_value() {
            let ids = batch.row_ids()?;
            return exec_err!(
                "JOIN: {}, row {} of the right side failed: {}: {}",
                snapshot.path(ids.file.value(*row)),
                ids.row.value(*row),
                errors[0].operator,
                errors[0].cause
            );
        }
        let over = batch.for_expressions(&plan.schema)?;
        for (((_, right), key_type), key) in on.iter().zip(&key_types).zip(&mut keys) {
            let right = Compiler::over(&plan.schema).key(right, key_type)?;
            let (values, failures) = evaluate(&right, &over)?;
            if let Some((_, (operator, cause))) = failures.first_key_value() {
                return exec_err!("JOIN: a key of the right side failed: {operator}: {cause}");
            }
            key.push(values);
        }
        for (column, values) in columns.iter_mut().zip(&batch.columns) {
            column.push(Arc::clone(values));
        }
    }
    let columns = { columns.iter().zip(plan.schema.fields()) }
        .map(|(pieces, field)| joined(pieces, field.data_type(), &format!("'{}'", field.name())))
        .collect::<Result<Vec<_>>>()?;
    let keys = { keys.iter().zip(&key_types) }
        .map(|(pieces, key_type)| joined(pieces, key_type, "of the keys"))
        .collect::<Result<Vec<_>>>()?;
    LookupTable::try_new(Arc::clone(&plan.schema), columns, &keys)
}

/// Concatenates `pieces`, the batches of one column of a right side. An error names the column as
/// `column`.
fn joined(pieces: &[ArrayRef], data_type: &DataType, column: &str) -> Result<ArrayRef> {
    if pieces.is_empty() {
        return Ok(new_empty_array(data_type));
    }
    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
    concatenated(&pieces).map_err(|error| {
        if is_oversized(&error) {
            exec_datafusion_err!("JOIN: column {column} of the right side is too large: {error}")
        } else {
            error
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::cache::Stores;
    use crate::run::{JobRun, RunConfig};
    use crate::source::counting::compiled;

    #[tokio::test]
    async fn a_right_side_below_limits_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.display().to_string()
        };
        let left = write("left.csv", "id,k\n0,2\n1,1\n2,9\n3,2\n4,1\n5,1\n");
        let right = write("right.csv", "k,v\n1,one\n2,two\n");
        let sql = format!(
            "SELECT id, v FROM (
               SELECT id, v FROM (
                 SELECT a.id, b.v FROM csv('{left}') AS a JOIN csv('{right}') AS b ON a.k = b.k LIMIT 4
               ) AS inner_rows LIMIT 3
             ) AS outer_rows BATCH 2"
        );
        let reads = Arc::new(AtomicUsize::new(0));
        let compiled = compiled(&sql, "right.csv", &reads).await;
        let (config, stores) = (RunConfig::default(), Stores::default());
        let job_run = JobRun::open(&compiled, &config, &stores).await.unwrap();
        let mut run = job_run.start();
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        let mut rows = 0;
        while let Some(batch) = run.next().await {
            rows += batch.unwrap().batch.num_rows();
        }
        assert_eq!((rows, reads.load(Ordering::SeqCst)), (3, 1));
    }
}
