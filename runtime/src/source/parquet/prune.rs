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

/// Returns the rows of the row group at `place` for which `predicate` may be true. The column
/// indices in `predicate` refer to `schema`, which is not projected.
pub(super) fn kept_rows(
    builder: &ParquetRecordBatchReaderBuilder<SharedInput>,
    place: &SplitLocation,
    schema: &SchemaRef,
    predicate: &Arc<dyn PhysicalExpr>,
) -> KeptRows {
    let Some(group) = builder.metadata().row_groups().get(place.split) else {
        return KeptRows::All;
    };
    let Some(sound) = sound_part(predicate, schema, group) else {
        return KeptRows::All;
    };
    // Damaged statistics can make the libraries panic. In that case all rows are read, and reading
    // reports damage if the rows themselves are damaged.
    let attempt = catch_unwind(AssertUnwindSafe(|| access(builder, place, schema, sound)));
    match attempt {
        Ok(Some(RowGroupAccess::Skip)) => KeptRows::None,
        Ok(Some(RowGroupAccess::Selection(selection))) => KeptRows::Some(selection),
        _ => KeptRows::All,
    }
}

/// True when the statistics of the row group at `place` say that `predicate` is true for none of its
/// rows. Nothing is read for it.
pub(super) fn is_excluded(
    footer: &ParquetMetaData,
    place: &SplitLocation,
    schema: &SchemaRef,
    predicate: &Arc<dyn PhysicalExpr>,
) -> bool {
    let Some(group) = footer.row_groups().get(place.split) else {
        return false;
    };
    let Some(predicate) = sound_part(predicate, schema, group) else {
        return false;
    };
    let attempt = AssertUnwindSafe(|| {
        let pruning = pruning(&predicate, schema)?;
        let filter = by_statistics(footer, place, schema, &pruning, &metrics(place));
        Some(filter.remaining_row_group_count() == 0)
    });
    matches!(catch_unwind(attempt), Ok(Some(true)))
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

fn access(
    builder: &ParquetRecordBatchReaderBuilder<SharedInput>,
    place: &SplitLocation,
    schema: &SchemaRef,
    predicate: Arc<dyn PhysicalExpr>,
) -> Option<RowGroupAccess> {
    let metadata = builder.metadata();
    let pruning = pruning(&predicate, schema)?;
    let metrics = metrics(place);
    let mut filter = by_statistics(metadata, place, schema, &pruning, &metrics);
    let mut blooms = vec![BloomFilterStatistics::new(); metadata.num_row_groups()];
    blooms[place.split] = bloom_filters(builder, place, schema, &pruning);
    filter.prune_by_bloom_filters(&pruning, &metrics, &blooms);
    let plan = PagePruningAccessPlanFilter::new(&predicate, Arc::clone(schema))
        .prune_plan_with_page_index(
            filter.build(),
            schema,
            builder.parquet_schema(),
            metadata,
            &metrics,
        );
    plan.into_inner().into_iter().nth(place.split)
}

fn pruning(predicate: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> Option<PruningPredicate> {
    let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    builder.try_build(Arc::clone(predicate)).ok()
}

fn metrics(place: &SplitLocation) -> ParquetFileMetrics {
    let name = place.path.to_string_lossy();
    ParquetFileMetrics::new(0, &name, &ExecutionPlanMetricsSet::new())
}

/// Returns a plan that reads the row group at `place`, or nothing if its statistics exclude it.
fn by_statistics(
    metadata: &ParquetMetaData,
    place: &SplitLocation,
    schema: &SchemaRef,
    pruning: &PruningPredicate,
    metrics: &ParquetFileMetrics,
) -> RowGroupAccessPlanFilter {
    let mut plan = ParquetAccessPlan::new_none(metadata.num_row_groups());
    plan.scan(place.split);
    let mut filter = RowGroupAccessPlanFilter::new(plan);
    filter.prune_by_statistics(
        schema,
        metadata.file_metadata().schema_descr(),
        metadata.row_groups(),
        pruning,
        metrics,
    );
    filter
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
