//! A batch whose failed rows are settled, before it is emitted.

use arrow::array::UInt64Array;

use super::failure::Failure;
use super::pack;
use super::settle::Settled;
use crate::error::{Error, Result};
use crate::fragment::row_batch::RowBatch;

/// The rows of a batch, and how they are packed.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) members: RowBatch,
    /// Number of rows in each pack, if rows are packed.
    pub(super) packs: Option<Vec<u32>>,
    /// Number of rows (or packs) at the end that only repeat others.
    pub(super) padded: usize,
    /// The first failed row, if any.
    failure: Option<Failure>,
}

impl Made {
    /// Creates a batch without failed rows. Only its first `own` rows are new; the others are repeated.
    pub(super) fn whole(members: RowBatch, packs: Option<Vec<u32>>, own: usize) -> Self {
        let padded = padded(members.len(), own, packs.as_deref());
        Self {
            members,
            packs,
            padded,
            failure: None,
        }
    }

    /// Creates the batch that remains after its failed rows were settled.
    pub(super) fn settled(
        settled: Settled,
        packs: Option<Vec<u32>>,
        own: usize,
        failure: Option<Failure>,
    ) -> Result<Self> {
        let picks = settled.picks;
        let packs = packs.map(|packs| pack::left(&packs, &picks));
        let own = if picks.len() == settled.rows.len() {
            // Under `replace` and `null` every row is still in its place, so the first `own` rows
            // are the new ones.
            own
        } else {
            // Repeated rows follow the others.
            picks.partition_point(|&row| row < own)
        };
        let padded = padded(picks.len(), own, packs.as_deref());
        let picks = UInt64Array::from_iter_values(picks.iter().map(|&row| row as u64));
        Ok(Self {
            members: settled.rows.take(&picks)?,
            packs,
            padded,
            failure,
        })
    }

    /// Repeats rows (or packs) from the beginning until there are `units`.
    ///
    /// # Errors
    /// Fails if all rows failed, so that none is left to be repeated.
    pub(super) fn fill(&mut self, units: usize) -> Result<()> {
        let rows = self.members.len();
        let found = self.packs.as_ref().map_or(rows, Vec::len);
        if found >= units {
            return Ok(());
        }
        if rows == 0 {
            let Some(mut failure) = self.failure.take() else {
                return Ok(());
            };
            failure.cause = format!(
                "every row of this rank's batch failed, so none can be repeated to fill the batch up to the size of \
                 the other ranks' batches; the first: {}",
                failure.cause
            );
            return Err(Error::Row(Box::new(failure)));
        }
        let around = match &mut self.packs {
            None => UInt64Array::from_iter_values((0..units).map(|i| (i % rows) as u64)),
            Some(packs) => {
                let mut starts = Vec::with_capacity(found);
                let mut end = 0_u64;
                for &rows in packs.iter() {
                    starts.push(end);
                    end += u64::from(rows);
                }
                let mut picks: Vec<u64> = (0..end).collect();
                for again in 0..units - found {
                    let (start, rows) = (starts[again % found], packs[again % found]);
                    picks.extend(start..start + u64::from(rows));
                    packs.push(rows);
                }
                UInt64Array::from(picks)
            }
        };
        self.members = self.members.take(&around)?;
        self.padded += units - found;
        Ok(())
    }
}

/// Returns the number of rows (or packs) after the first `own` rows.
fn padded(rows: usize, own: usize, packs: Option<&[u32]>) -> usize {
    match packs {
        None => rows - own,
        // Packs are repeated all together or not at all.
        Some(packs) if own == 0 => packs.len(),
        Some(_) => 0,
    }
}
