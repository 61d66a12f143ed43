//! The right sides of lookups, which are read when a pipeline is opened: each once, however many jobs are made
//! of the plan to resolve its limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::datatypes::DataType;
use datafusion::common::{
    Result, exec_datafusion_err, exec_err, internal_datafusion_err, internal_err, not_impl_err,
};
use forebay_planner::rows::membership::{is_random, visit_stream};
use forebay_planner::rows::{RowOp, RowPlan};
use futures::TryStreamExt;

use crate::fragment::compile::{Compiler, key_types};
use crate::fragment::evaluate::{concatenated, evaluate, is_oversized};
use crate::fragment::lookup::LookupTable;
use crate::job::{Env, Job};
use crate::segment;
use crate::snapshot::Snapshot;

/// The tables of several lookups.
pub type LookupTables = Vec<Arc<LookupTable>>;

/// A right side: its rows in memory, and the data that they are of.
#[derive(Debug)]
struct RightSide {
    table: Arc<LookupTable>,
    data: Vec<Arc<Snapshot>>,
}

/// The right sides of a plan's lookups.
#[derive(Debug, Default)]
pub struct Lookups {
    /// By the first of the scans that each is read by: no other one has it.
    by_scan: BTreeMap<u32, RightSide>,
}

impl Lookups {
    /// Reads the right sides of all lookups of a plan, those below its limits included.
    ///
    /// # Errors
    /// One that draws, cannot be read, or has a key twice.
    pub async fn read(plan: &RowPlan, env: &Env) -> Result<Self> {
        let mut by_scan = BTreeMap::new();
        for lookup in lookups_of(plan) {
            let (table, data) = lookup_table(lookup, env).await?;
            let table = Arc::new(table);
            by_scan.insert(first_scan(lookup)?, RightSide { table, data });
        }
        Ok(Self { by_scan })
    }

    /// The tables of the lookups of a plan, or of a part of it, in evaluation order; and the data that they are of.
    ///
    /// # Errors
    /// One was not read.
    pub fn of(&self, plan: &RowPlan) -> Result<(LookupTables, Vec<Arc<Snapshot>>)> {
        let (mut tables, mut data) = (Vec::new(), Vec::new());
        for lookup in lookups_of(plan) {
            let side = self.by_scan.get(&first_scan(lookup)?);
            let side =
                side.ok_or_else(|| internal_datafusion_err!("a lookup that was not read"))?;
            tables.push(Arc::clone(&side.table));
            data.extend(side.data.iter().cloned());
        }
        Ok((tables, data))
    }
}

/// The lookups that stored rows flow through, in evaluation order.
fn lookups_of(plan: &RowPlan) -> Vec<&RowPlan> {
    let mut lookups = Vec::new();
    visit_stream(plan, &mut |node| {
        if matches!(node.op, RowOp::Lookup { .. }) {
            lookups.push(node);
        }
    });
    lookups
}

/// The occurrence of the first scan of a lookup's right side.
fn first_scan(lookup: &RowPlan) -> Result<u32> {
    let scans = lookup.inputs[1].scans();
    match scans.first().map(|scan| &scan.op) {
        Some(RowOp::Scan { occurrence, .. }) => Ok(*occurrence),
        _ => internal_err!("a lookup whose right side reads nothing"),
    }
}

async fn lookup_table(lookup: &RowPlan, env: &Env) -> Result<(LookupTable, Vec<Arc<Snapshot>>)> {
    let RowOp::Lookup { on, .. } = &lookup.op else {
        return internal_err!("not a lookup");
    };
    let plan = &lookup.inputs[1];
    if is_random(plan) {
        return not_impl_err!("a random function on the right side of a JOIN is not supported yet");
    }
    let job = Arc::new(Job::open(plan, env).await?);
    let splits = 0..job.snapshot.splits.len() as u32;
    let batches: Vec<_> = segment::stored_order(&job, &job.reader, splits, 0, env)
        .try_collect()
        .await?;
    let key_types = key_types(lookup)?;
    let mut keys = vec![Vec::new(); on.len()];
    let mut columns = vec![Vec::new(); plan.schema.fields().len()];
    for batch in &batches {
        if let Some((row, errors)) = batch.errors.first_key_value() {
            let ids = batch.row_ids()?;
            return exec_err!(
                "JOIN: {}, row {} of the right side failed: {}: {}",
                job.snapshot.path(ids.file.value(*row)),
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
    let columns = columns.iter().zip(plan.schema.fields());
    let columns = columns
        .map(|(pieces, field)| joined(pieces, field.data_type(), &format!("'{}'", field.name())));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let keys = keys.iter().zip(&key_types);
    let keys = keys.map(|(pieces, key_type)| joined(pieces, key_type, "of the keys"));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let table = LookupTable::try_new(Arc::clone(&plan.schema), columns, &keys)?;
    Ok((table, job.data().cloned().collect()))
}

/// A whole column of a right side.
fn joined(pieces: &[ArrayRef], data_type: &DataType, column: &str) -> Result<ArrayRef> {
    if pieces.is_empty() {
        return Ok(new_empty_array(data_type));
    }
    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
    concatenated(&pieces).map_err(|error| match is_oversized(&error) {
        true => {
            exec_datafusion_err!("JOIN: column {column} of the right side is too large: {error}")
        }
        false => error,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::RecordBatch;
    use arrow::datatypes::SchemaRef;
    use async_trait::async_trait;
    use datafusion::catalog::TableProvider;
    use forebay_planner::catalog::Catalog;
    use forebay_planner::compile::Compiled;
    use forebay_planner::source::{SourceResolver, SourceSpec};
    use forebay_planner::sql::{Statement, parse};
    use futures::stream::BoxStream;

    use super::*;
    use crate::cache::Stores;
    use crate::engine::{Opened, RunConfig};
    use crate::source::{
        Access, FileResolver, Manifest, Scan, Source, SourceTable, StoredRows, ValueError,
    };

    /// A source that counts how often one of its splits is read.
    #[derive(Debug)]
    struct Counted {
        inner: Arc<dyn Source>,
        reads: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl Source for Counted {
        fn spec(&self) -> &SourceSpec {
            self.inner.spec()
        }

        fn schema(&self) -> &SchemaRef {
            self.inner.schema()
        }

        fn manifest(&self) -> &Manifest {
            self.inner.manifest()
        }

        fn access(&self) -> Access {
            self.inner.access()
        }

        fn read_split(
            &self,
            file: usize,
            split: usize,
            scan: &Scan,
        ) -> BoxStream<'static, Result<StoredRows>> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.inner.read_split(file, split, scan)
        }

        async fn fetch(
            &self,
            rows: &[(u32, u64)],
            projection: &[usize],
        ) -> Result<(RecordBatch, Vec<ValueError>)> {
            self.inner.fetch(rows, projection).await
        }
    }

    /// Opens files, and counts what is read of those named `right.csv`.
    #[derive(Debug)]
    struct Counting(Arc<AtomicUsize>);

    #[async_trait]
    impl SourceResolver for Counting {
        async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
            let table = FileResolver.resolve(spec).await?;
            if !spec.location.ends_with("right.csv") {
                return Ok(table);
            }
            let inner = Arc::clone(table.downcast_ref::<SourceTable>().unwrap().source());
            let reads = Arc::clone(&self.0);
            Ok(Arc::new(SourceTable::new(Arc::new(Counted {
                inner,
                reads,
            }))))
        }
    }

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
        let resolver = Arc::new(Counting(Arc::clone(&reads)));
        let catalog = Catalog::new(forebay_udfs::functions(), resolver);
        let Some(Statement::Query(query)) = parse(&sql).unwrap().pop() else {
            panic!("{sql}");
        };
        let pipeline = catalog.plan_query(&query).await.unwrap();
        let compiled = Compiled::new(&pipeline.plan, pipeline.clauses).unwrap();
        let (config, stores) = (RunConfig::default(), Stores::default());
        let opened = Opened::new(&compiled, &config, &stores).await.unwrap();
        let mut run = opened.start();
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        let mut rows = 0;
        while let Some(batch) = run.next().await {
            rows += batch.unwrap().batch.num_rows();
        }
        assert_eq!((rows, reads.load(Ordering::SeqCst)), (3, 1));
    }
}
