//! Presents a source as a DataFusion table, for the planner and for plain SQL queries over the
//! data.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, exec_err, internal_err, project_schema};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use forebay_planner::source::SourceSpec;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

#[cfg(doc)]
use super::manifest::Manifest;
use super::manifest::Split;
use super::opened::{Access, Source};
use super::rows::Scan;
use super::stream::BATCH_BYTES;

/// Maximum number of rows in one call of [`Source::fetch`] while a source with [`Access::Direct`]
/// is scanned.
const FETCH_ROWS: usize = 1024;

/// A source as a table whose scan yields every row in stored order.
///
/// Code that has a `dyn TableProvider` gets the [`Source`] by
/// `provider.downcast_ref::<SourceTable>()` and [`source`](Self::source).
#[derive(Debug, Clone)]
pub struct SourceTable {
    source: Arc<dyn Source>,
    definition: String,
}

impl SourceTable {
    /// Creates the table of an opened source.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let SourceSpec {
            format, location, ..
        } = source.spec();
        let location = location.replace('\'', "''");
        Self {
            definition: format!("STORED AS {format} LOCATION '{location}'"),
            source,
        }
    }

    /// Describes a table: returns the description from which it was opened, and the
    /// [hash](Manifest::hash) of its files. Returns `None` if the table is no source.
    pub fn describe(table: &dyn TableProvider) -> Option<(SourceSpec, String)> {
        let source = &table.downcast_ref::<Self>()?.source;
        Some((source.spec().clone(), source.manifest().hash()))
    }

    /// Returns the source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }
}

#[async_trait]
impl TableProvider for SourceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.source.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Returns the definition as SQL: `STORED AS format LOCATION 'location'`.
    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.definition)
    }

    fn statistics(&self) -> Option<Statistics> {
        let splits = || self.source.manifest().files.iter().flat_map(|f| &f.splits);
        let sum = |of: fn(&Split) -> u64| splits().map(of).fold(0, u64::saturating_add);
        let mut known = Statistics::new_unknown(self.source.schema());
        known.num_rows = Precision::Exact(sum(|split| split.rows) as usize);
        known.total_byte_size = Precision::Inexact(sum(|split| split.bytes) as usize);
        Some(known)
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.source.schema().fields().len()).collect(),
        };
        Ok(Arc::new(SourceExec::try_new(
            Arc::clone(&self.source),
            projection,
            limit,
        )?))
    }
}

/// Streams the rows of a source in stored order, in one partition.
#[derive(Debug)]
pub struct SourceExec {
    source: Arc<dyn Source>,
    /// Indices of the output columns in the source's schema, in output order.
    projection: Vec<usize>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl SourceExec {
    /// Creates a scan of the columns `projection` of the source's schema, which yields at most
    /// `limit` rows.
    pub fn try_new(
        source: Arc<dyn Source>,
        projection: Vec<usize>,
        limit: Option<usize>,
    ) -> Result<Self> {
        let schema = project_schema(source.schema(), Some(&projection))?;
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Ok(Self {
            source,
            projection,
            limit,
            properties,
        })
    }

    fn rows(&self) -> BoxStream<'static, Result<RecordBatch>> {
        let source = Arc::clone(&self.source);
        // Sources take column indices in ascending order, but DataFusion gives the indices in any
        // order.
        let mut ascending = self.projection.clone();
        ascending.sort_unstable();
        ascending.dedup();
        let order: Vec<usize> = self
            .projection
            .iter()
            .filter_map(|c| ascending.binary_search(c).ok())
            .collect();
        let batches = match source.access() {
            Access::Direct => fetched(source, ascending),
            Access::Staged => split_by_split(source, ascending),
        };
        batches
            .map(move |batch| Ok(batch?.project(&order)?))
            .boxed()
    }
}

fn split_by_split(
    source: Arc<dyn Source>,
    projection: Vec<usize>,
) -> BoxStream<'static, Result<RecordBatch>> {
    let files = &source.manifest().files;
    let splits: Vec<(usize, usize)> = files
        .iter()
        .enumerate()
        .flat_map(|(file, found)| (0..found.splits.len()).map(move |split| (file, split)))
        .collect();
    let scan = Scan {
        projection,
        prune: None,
        keep: None,
    };
    stream::iter(splits)
        .map(move |(file, split)| source.read_split(file, split, &scan))
        .flatten()
        .map_ok(|rows| rows.batch)
        .boxed()
}

/// Streams all rows in stored order, fetched by reference. One fetch covers many rows, which may be
/// many small files.
fn fetched(
    source: Arc<dyn Source>,
    projection: Vec<usize>,
) -> BoxStream<'static, Result<RecordBatch>> {
    let mut groups: Vec<Vec<(u32, u64)>> = Vec::new();
    let mut group = Vec::new();
    let mut bytes = 0u64;
    for (file, found) in (0u32..).zip(&source.manifest().files) {
        for split in &found.splits {
            let each = split.bytes.checked_div(split.rows).unwrap_or(0);
            for row in split.first_row..split.first_row + split.rows {
                if group.len() == FETCH_ROWS || (!group.is_empty() && bytes + each > BATCH_BYTES) {
                    groups.push(std::mem::take(&mut group));
                    bytes = 0;
                }
                group.push((file, row));
                bytes += each;
            }
        }
    }
    groups.push(group);
    stream::iter(groups.into_iter().filter(|group| !group.is_empty()))
        .then(move |group| {
            let source = Arc::clone(&source);
            let projection = projection.clone();
            async move {
                let (batch, errors) = source.fetch(&group, &projection).await?;
                match errors.first() {
                    None => Ok(batch),
                    Some(error) => exec_err!("{}", error.cause),
                }
            }
        })
        .boxed()
}

impl DisplayAs for SourceExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.source.spec();
        write!(f, "SourceExec: {} '{}'", spec.format, spec.location)?;
        let schema = self.properties.eq_properties.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, ", projection=[{}]", names.join(", "))?;
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SourceExec {
    fn name(&self) -> &'static str {
        "SourceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            internal_err!("SourceExec has no children")
        }
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!(
                "SourceExec has only the partition 0, but partition {partition} was requested"
            );
        }
        let rows = self.rows();
        let rows = match self.limit {
            None => rows,
            Some(limit) => limited(rows, limit),
        };
        let schema = Arc::clone(self.properties.eq_properties.schema());
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

fn limited(
    rows: BoxStream<'static, Result<RecordBatch>>,
    limit: usize,
) -> BoxStream<'static, Result<RecordBatch>> {
    stream::try_unfold((rows, limit), |(mut rows, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let Some(batch) = rows.try_next().await? else {
            return Ok(None);
        };
        let taken = batch.num_rows().min(left);
        Ok(Some((batch.slice(0, taken), (rows, left - taken))))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use datafusion::prelude::{SessionConfig, SessionContext};
    use forebay_planner::source::{Format, SourceResolver};

    use super::*;
    use crate::source::FileResolver;
    use crate::source::testing::{spec, tree};

    async fn sql(table: Arc<dyn TableProvider>, query: &str) -> String {
        // With more than one target partition, the order of the rows would vary.
        let config = SessionConfig::new().with_target_partitions(1);
        let context = SessionContext::new_with_config(config);
        context.register_table("t", table).unwrap();
        let batches = context.sql(query).await.unwrap().collect().await.unwrap();
        let rows = batches.iter().flat_map(|batch| {
            (0..batch.num_rows()).map(|row| {
                let value = |c: &arrow::array::ArrayRef| {
                    arrow::util::display::array_value_to_string(c, row).unwrap()
                };
                batch
                    .columns()
                    .iter()
                    .map(value)
                    .collect::<Vec<_>>()
                    .join(",")
            })
        });
        rows.collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn images_are_rows_of_a_table() {
        let names: Vec<String> = (0..1500).map(|i| format!("{}/{i:04}.png", i % 2)).collect();
        let dir = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let spec = spec(Format::ImageFolder, dir.path(), &[]);
        let table = FileResolver::default().resolve(&spec).await.unwrap();
        assert!(table.downcast_ref::<SourceTable>().is_some());
        let query = "SELECT label, path FROM t LIMIT 3";
        assert_eq!(
            sql(Arc::clone(&table), query).await,
            "0,0/0000.png 0,0/0002.png 0,0/0004.png"
        );
        let query =
            "SELECT count(*), sum(label), sum(octet_length(arrow_cast(image, 'Utf8'))) FROM t";
        assert_eq!(sql(Arc::clone(&table), query).await, "1500,750,15000");
        assert_eq!(
            sql(table, "SELECT count(*) FROM (SELECT * FROM t LIMIT 1200)").await,
            "1200"
        );
    }

    #[tokio::test]
    async fn columns_come_in_the_order_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.csv"), "a,b,c\n1,x,2\n3,y,4\n").unwrap();
        fs::write(dir.path().join("b.csv"), "a,b,c\n5,z,6\n").unwrap();
        let table = FileResolver::default()
            .resolve(&spec(Format::Csv, dir.path(), &[]))
            .await
            .unwrap();
        assert_eq!(
            sql(Arc::clone(&table), "SELECT c, a FROM t").await,
            "2,1 4,3 6,5"
        );
        assert_eq!(
            sql(Arc::clone(&table), "SELECT b FROM t WHERE a > 2").await,
            "y z"
        );
        assert_eq!(sql(Arc::clone(&table), "SELECT count(*) FROM t").await, "3");
        let state = SessionContext::new().state();
        let plan = table
            .scan(&state, Some(&vec![2, 0]), &[], Some(1))
            .await
            .unwrap();
        let shown = datafusion::physical_plan::displayable(plan.as_ref())
            .one_line()
            .to_string();
        assert!(shown.contains("SourceExec: CSV") && shown.contains("projection=[c, a], limit=1"));
        assert_eq!(plan.schema().field(0).name(), "c");
    }
}
