//! Speed at which a client names the segments of a very large data set.
//!
//! The source has a manifest and no data. The engine takes the names of all segments, as a cluster
//! does, and computes none.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result as EngineResult, exec_datafusion_err, exec_err};
use forebay_planner::catalog::Catalog;
use forebay_planner::clauses::Optimize;
use forebay_planner::compile::Compiled;
use forebay_planner::source::{Format, SourceResolver, SourceSpec};
use forebay_planner::sql::{Statement, parse};
use forebay_runtime::cache::Stores;
use forebay_runtime::error::Result as RunResult;
use forebay_runtime::fragment::row_batch::RowBatch;
use forebay_runtime::run::{
    CountShare, JobRun, OpenJob, RunConfig, RunInternals, SegmentEngine, SegmentName, ShareName,
};
use forebay_runtime::source::{
    Access, ContentHash, Manifest, Scan, Source, SourceFile, SourceTable, Split, StoredRows,
    ValueError,
};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};

/// Size of a data set.
#[derive(Debug, Clone, Copy)]
struct DataSize {
    files: u64,
    splits_per_file: u64,
    rows_per_split: u64,
}

const MANY_ROWS: DataSize = DataSize {
    files: 1_000,
    splits_per_file: 100,
    rows_per_split: 10_000,
};
const MANY_FILES: DataSize = DataSize {
    files: 1_000_000,
    splits_per_file: 1,
    rows_per_split: 1_000,
};

/// A source of 10^9 rows, which cannot be read.
#[derive(Debug)]
struct ManifestOnly {
    spec: SourceSpec,
    schema: SchemaRef,
    manifest: Arc<Manifest>,
}

impl ManifestOnly {
    fn new(size: DataSize) -> Result<Self, Box<dyn Error>> {
        let DataSize {
            files,
            splits_per_file,
            rows_per_split,
        } = size;
        let content: ContentHash = serde_json::from_str("[0,0,0,0,0,0,0,0]")?;
        let split = |nth: u64| Split {
            first_row: nth * rows_per_split,
            rows: rows_per_split,
            bytes: rows_per_split * 8,
        };
        let file = |nth: u64| SourceFile {
            path: format!("part-{nth:05}.parquet"),
            size: splits_per_file * rows_per_split * 8,
            etag: None,
            content,
            modified: None,
            splits: (0..splits_per_file).map(split).collect(),
        };
        Ok(Self {
            spec: SourceSpec {
                format: Format::Parquet,
                location: "generated".to_owned(),
                options: BTreeMap::new(),
                columns: None,
            },
            schema: Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)])),
            manifest: Arc::new(Manifest {
                files: (0..files).map(file).collect(),
                links: Vec::new(),
            }),
        })
    }
}

#[async_trait]
impl Source for ManifestOnly {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn access(&self) -> Access {
        Access::Staged
    }

    fn read_split(
        &self,
        _: usize,
        _: usize,
        _: &Scan,
    ) -> BoxStream<'static, EngineResult<StoredRows>> {
        stream::iter([exec_err!("the source has no data")]).boxed()
    }

    async fn fetch(
        &self,
        _: &[(u32, u64)],
        _: &[usize],
    ) -> EngineResult<(RecordBatch, Vec<ValueError>)> {
        exec_err!("the source has no data")
    }
}

#[async_trait]
impl SourceResolver for ManifestOnly {
    async fn resolve(&self, spec: &SourceSpec) -> EngineResult<Arc<dyn TableProvider>> {
        let source = Self {
            spec: spec.clone(),
            schema: Arc::clone(&self.schema),
            manifest: Arc::clone(&self.manifest),
        };
        Ok(Arc::new(SourceTable::new(Arc::new(source))))
    }
}

/// Counts of the segments that were named.
#[derive(Debug, Default, Clone, Copy)]
struct Named {
    segments: u64,
    rows: u64,
    /// Seconds from the first name to the last.
    seconds: f64,
}

/// Takes the names of all segments, and computes none.
#[derive(Debug, Default)]
struct NameTaker(Arc<Mutex<Named>>);

impl SegmentEngine for NameTaker {
    fn compute(
        &self,
        _: &Arc<OpenJob>,
        segments: BoxStream<'static, SegmentName>,
    ) -> BoxStream<'static, RunResult<Vec<RowBatch>>> {
        let named = Arc::clone(&self.0);
        let take = async move {
            let start = Instant::now();
            let mut count = Named::default();
            let mut segments = segments;
            while let Some(name) = segments.next().await {
                count.segments += 1;
                count.rows += name.rows();
            }
            count.seconds = start.elapsed().as_secs_f64();
            *named.lock().unwrap_or_else(PoisonError::into_inner) = count;
            stream::empty()
        };
        take.flatten_stream().boxed()
    }

    fn count(&self, _: &Arc<OpenJob>, _: ShareName) -> BoxFuture<'static, RunResult<CountShare>> {
        async { Err(exec_datafusion_err!("the source has no data").into()) }.boxed()
    }
}

/// Prints the speed for each order of rows, and the peak of the process's memory so far.
pub(crate) async fn speeds() -> Result<(), Box<dyn Error>> {
    let (rows, files) = (
        ManifestOnly::new(MANY_ROWS)?,
        ManifestOnly::new(MANY_FILES)?,
    );
    let (rows, files) = (Arc::new(rows), Arc::new(files));
    for (source, order, clauses, take) in [
        (&rows, "stored order", "", 1_000_000_000),
        (
            &rows,
            "SHUFFLE WITHIN 10000 ROWS",
            "SHUFFLE WITHIN 10000 ROWS",
            1_000_000_000,
        ),
        (
            &rows,
            "SHUFFLE WITHIN 1000000 ROWS",
            "SHUFFLE WITHIN 1000000 ROWS",
            200_000_000,
        ),
        (
            &files,
            "10^6 files",
            "SHUFFLE WITHIN 10000 ROWS",
            100_000_000,
        ),
    ] {
        let sql = format!("SELECT id FROM parquet('generated') {clauses} TAKE {take} BATCH 1024");
        let resolver = Arc::clone(source) as Arc<dyn SourceResolver>;
        let catalog = Catalog::new(forebay_udfs::functions(), resolver);
        let Some(Statement::Query(query)) = parse(&sql)?.pop() else {
            return Err(format!("no query: {sql}").into());
        };
        let pipeline = catalog.plan_query(&query).await?;
        let mut clauses = pipeline.clauses.clone();
        // The optimiser would read a sample.
        clauses.options.optimize = Optimize::Off;
        let compiled = Compiled::new(&pipeline.plan, clauses)?;
        let taker = NameTaker::default();
        let named = Arc::clone(&taker.0);
        let config = RunConfig {
            internals: RunInternals {
                engine: Some(Arc::new(taker)),
                ..RunInternals::default()
            },
            ..RunConfig::default()
        };
        let start = Instant::now();
        let mut run = JobRun::open(&compiled, &config, &Stores::default())
            .await?
            .start();
        let opened = start.elapsed();
        // The run ends with an error, because the engine has no rows.
        while let Some(Ok(_)) = run.next().await {}
        let named = *named.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "cutting, {order}: {} rows in {} segments, {:.1} M rows/s, opened in {:.0} ms, peak memory {} MB",
            named.rows,
            named.segments,
            named.rows as f64 / named.seconds / 1e6,
            crate::millis(opened),
            crate::megabytes("self", "VmHWM")?,
        );
    }
    Ok(())
}
