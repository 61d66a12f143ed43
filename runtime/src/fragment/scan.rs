//! The leaf of a fragment: the stored rows of a segment, with their identities.

use datafusion::common::{Result, internal_err};

use super::exec::RowOperator;
use super::row_batch::RowBatch;

/// Name of the leaf that stands for cached rows.
pub const CACHE_LEAF: &str = "CacheExec";

/// The origin of a leaf's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// The scan with this occurrence.
    Scan(u32),
    /// The cache point, whose rows are read from the cache or computed by the cached prefix.
    Cache,
}

/// A leaf that passes a segment's rows to the fragment.
#[derive(Debug)]
pub struct SegmentScan {
    /// The origin of the rows.
    pub leaf: Leaf,
    /// The rows; `None` in a planned fragment, which is a template.
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
