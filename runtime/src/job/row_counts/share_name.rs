//! Counting by an engine, such as the workers of a cluster, in shares that have names.

use std::ops::Range;

use datafusion::common::{DataFusionError, Result as EngineResult, exec_err};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::count_share::{CountShare, ranges};
use super::counts::RowCounts;
use crate::error::{Error, Result};
use crate::order::Snapshot;

/// Number of shares into which an engine's counting is divided.
const SHARES: u64 = 64;
/// Number of shares that an engine counts at the same time.
const SHARES_AT_ONCE: usize = 16;

/// Has an engine count a share.
pub(crate) type CountCall<'a> =
    dyn Fn(ShareName) -> BoxFuture<'static, Result<CountShare>> + Send + Sync + 'a;

/// The name of a share of a job's stored rows, from which any process that has opened the job counts
/// the same rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareName {
    /// True to count the rows that the inputs of a MIX yield, and false to count output rows.
    pub inputs: bool,
    /// Range of the job's splits.
    pub splits: Range<u32>,
    /// Key of the pass whose random draws decide.
    pub pass: u64,
}

impl ShareName {
    /// Returns the range of stored rows in the share; `None` if `snapshot` does not have its splits.
    pub(super) fn rows(&self, snapshot: &Snapshot) -> Option<Range<u64>> {
        let splits = snapshot
            .splits
            .get(self.splits.start as usize..self.splits.end as usize)?;
        let (first, last) = (splits.first()?, splits.last()?);
        Some(first.start..last.start + last.rows)
    }
}

/// Counts all stored rows of `snapshot` by `count`, in shares. Group keys belong to one of `buckets` buckets, if there are keys.
pub(super) async fn count_by(
    count: &CountCall<'_>,
    snapshot: &Snapshot,
    (inputs, pass): (bool, u64),
    buckets: Option<usize>,
) -> EngineResult<RowCounts> {
    let shares = ranges(snapshot, SHARES).into_iter().map(|(splits, rows)| {
        let share = ShareName {
            inputs,
            splits,
            pass,
        };
        let counted = count(share);
        async move {
            let counted = counted.await.map_err(into_engine)?;
            if !counted.is_of(rows.end - rows.start, buckets) {
                return exec_err!("an engine counted other rows than those it was asked for");
            }
            Ok(counted)
        }
    });
    let shares = stream::iter(shares).buffered(SHARES_AT_ONCE);
    Ok(RowCounts::of_shares(shares.try_collect().await?))
}

fn into_engine(error: Error) -> DataFusionError {
    match error {
        Error::Engine(error) => error,
        error => DataFusionError::External(Box::new(error)),
    }
}
