//! Finds the rows of a row group for which a predicate can be true, by the statistics, the page
//! index and the Bloom filters of the file.
//!
//! Pruning must never change the rows of a pipeline, so a conjunct is used only if the statistics
//! of its columns are reliable. Four kinds are not used: statistics of floats, which leave out NaN
//! although NaN compares above everything; statistics of nested columns; statistics without a null
//! count, which `IS NULL` needs; and the deprecated statistics of old writers, which order bytes
//! and unsigned numbers wrongly.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::datasource::physical_plan::parquet::{
    BloomFilterStatistics, PagePruningAccessPlanFilter, ParquetAccessPlan, ParquetFileMetrics,
    RowGroupAccess, RowGroupAccessPlanFilter,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection};
use parquet::arrow::parquet_column;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::super::input::SharedInput;
use super::super::split_location::SplitLocation;

/// Maximum size in bytes of a Bloom filter that is read. Larger Bloom filters are not used.
const MAX_BLOOM_BYTES: i64 = 16 << 20;

/// The rows of a row group that have to be read.
#[derive(Debug)]
pub(super) enum KeptRows {
    /// All rows.
    All,
    /// No row.
    None,
    /// The selected rows, which are those of some pages.
    Some(RowSelection),
}

/// The pruning of a row group by a predicate, after its statistics were evaluated.
pub(super) struct Pruning {
    /// The conjuncts that may be used for pruning.
    predicate: Arc<dyn PhysicalExpr>,
    pruning: PruningPredicate,
    metrics: ParquetFileMetrics,
    /// The row groups that the statistics leave.
    left: RowGroupAccessPlanFilter,
}

impl Pruning {
    /// Evaluates the statistics of the row group at `place`, without reading anything. Returns
    /// `None` when `predicate` cannot be used for pruning. The column indices in `predicate` refer
    /// to `schema`, which is not projected.
    pub(super) fn by_statistics(
        footer: &ParquetMetaData,
        place: &SplitLocation,
        schema: &SchemaRef,
        predicate: &Arc<dyn PhysicalExpr>,
    ) -> Option<Self> {
        let group = footer.row_groups().get(place.split)?;
        let predicate = sound_part(predicate, schema, group)?;
        // Damaged statistics can make the libraries panic. In that case all rows are read, and
        // reading reports damage if the rows themselves are damaged.
        let attempt = AssertUnwindSafe(|| evaluated(footer, place, schema, predicate));
        catch_unwind(attempt).ok().flatten()
    }

    /// True when the predicate is true for no row of the row group.
    pub(super) fn is_excluded(&self) -> bool {
        self.left.remaining_row_group_count() == 0
    }

    /// Returns the rows of the row group for which the predicate may be true, by the Bloom filters
    /// and the page index, too.
    pub(super) fn kept_rows(
        self,
        builder: &ParquetRecordBatchReaderBuilder<SharedInput>,
        place: &SplitLocation,
        schema: &SchemaRef,
    ) -> KeptRows {
        // Damaged indexes can make the libraries panic, as damaged statistics can.
        let attempt = AssertUnwindSafe(|| self.access(builder, place, schema));
        match catch_unwind(attempt) {
            Ok(Some(RowGroupAccess::Skip)) => KeptRows::None,
            Ok(Some(RowGroupAccess::Selection(selection))) => KeptRows::Some(selection),
            _ => KeptRows::All,
        }
    }

    fn access(
        mut self,
        builder: &ParquetRecordBatchReaderBuilder<SharedInput>,
        place: &SplitLocation,
        schema: &SchemaRef,
    ) -> Option<RowGroupAccess> {
        let metadata = builder.metadata();
        let mut blooms = vec![BloomFilterStatistics::new(); metadata.num_row_groups()];
        blooms[place.split] = bloom_filters(builder, place, schema, &self.pruning);
        self.left
            .prune_by_bloom_filters(&self.pruning, &self.metrics, &blooms);
        let plan = PagePruningAccessPlanFilter::new(&self.predicate, Arc::clone(schema))
            .prune_plan_with_page_index(
                self.left.build(),
                schema,
                builder.parquet_schema(),
                metadata,
                &self.metrics,
            );
        plan.into_inner().into_iter().nth(place.split)
    }
}

/// Evaluates the statistics of the row group at `place`.
fn evaluated(
    footer: &ParquetMetaData,
    place: &SplitLocation,
    schema: &SchemaRef,
    predicate: Arc<dyn PhysicalExpr>,
) -> Option<Pruning> {
    let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let pruning = builder.try_build(Arc::clone(&predicate)).ok()?;
    let name = place.path.to_string_lossy();
    let metrics = ParquetFileMetrics::new(0, &name, &ExecutionPlanMetricsSet::new());
    let mut plan = ParquetAccessPlan::new_none(footer.num_row_groups());
    plan.scan(place.split);
    let mut left = RowGroupAccessPlanFilter::new(plan);
    left.prune_by_statistics(
        schema,
        footer.file_metadata().schema_descr(),
        footer.row_groups(),
        &pruning,
        &metrics,
    );
    Some(Pruning {
        predicate,
        pruning,
        metrics,
        left,
    })
}

/// Returns the conjuncts of `predicate` that may be used for pruning; `None` if there are none.
fn sound_part(
    predicate: &Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
    group: &RowGroupMetaData,
) -> Option<Arc<dyn PhysicalExpr>> {
    let conjuncts = split_conjunction(predicate).into_iter();
    let sound = conjuncts.filter(|conjunct| is_sound(conjunct, schema, group));
    let sound: Vec<_> = sound.map(Arc::clone).collect();
    (!sound.is_empty()).then(|| conjunction(sound))
}

fn is_sound(
    conjunct: &Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
    group: &RowGroupMetaData,
) -> bool {
    collect_columns(conjunct).iter().all(|column| {
        let Some(field) = schema.fields().get(column.index()) else {
            return false;
        };
        field.name() == column.name() && has_sound_type(field.data_type()) && {
            let leaf = (0..group.num_columns())
                .find(|&leaf| group.schema_descr().get_column_root_idx(leaf) == column.index());
            let statistics = leaf.and_then(|leaf| group.column(leaf).statistics());
            statistics.is_some_and(|s| s.null_count_opt().is_some() && !s.is_min_max_deprecated())
        }
    })
}

fn has_sound_type(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_temporal()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::Binary
                | DataType::Decimal128(..)
                | DataType::FixedSizeBinary(_)
        )
}

fn bloom_filters(
    builder: &ParquetRecordBatchReaderBuilder<SharedInput>,
    place: &SplitLocation,
    schema: &SchemaRef,
    pruning: &PruningPredicate,
) -> BloomFilterStatistics {
    let mut found = BloomFilterStatistics::new();
    let names: HashSet<String> = pruning.literal_columns().into_iter().collect();
    for name in names {
        let Some((leaf, _)) = parquet_column(builder.parquet_schema(), schema, &name) else {
            continue;
        };
        let column = builder.metadata().row_group(place.split).column(leaf);
        let length = column.bloom_filter_length().map_or(0, i64::from);
        if !(0..=MAX_BLOOM_BYTES).contains(&length) {
            continue;
        }
        if let Ok(Some(bloom)) = builder.get_row_group_column_bloom_filter(place.split, leaf) {
            let kind = column.column_type();
            found.insert(name, bloom, kind, column.column_descr().type_length());
        }
    }
    found
}
