//! The leaf operator of fragments, which outputs the rows of a segment with their identities.

use datafusion::common::{Result, internal_err};

use super::exec::RowOperator;
use super::row_batch::RowBatch;

/// Name in EXPLAIN of the leaf that outputs the rows of a cache point.
pub const CACHE_LEAF: &str = "CacheExec";

/// The origin of a leaf's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// The scan with this occurrence number in the plan.
    Scan(u32),
    /// The cache point. Its rows are read from the cache or computed by the plan below the cache
    /// point.
    Cache,
}

/// Leaf operator that outputs the rows of a segment to the operators above.
#[derive(Debug)]
pub struct SegmentScan {
    /// The origin of the rows.
    pub leaf: Leaf,
    /// The rows of the segment; `None` in a planned fragment, which is copied with rows for each
    /// segment.
    pub rows: Option<RowBatch>,
}

impl RowOperator for SegmentScan {
    fn name(&self) -> &'static str {
        match self.leaf {
            Leaf::Scan(_) => "SegmentScanExec",
            Leaf::Cache => CACHE_LEAF,
        }
    }

    fn apply(&self, _: Vec<RowBatch>) -> Result<RowBatch> {
        match &self.rows {
            Some(rows) => rows.cleared(),
            None => internal_err!("{} has no rows", self.name()),
        }
    }
}
