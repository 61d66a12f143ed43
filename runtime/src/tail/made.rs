//! A batch whose failed rows are settled, before it is put out.

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
    /// Rows of each pack, where rows are packed.
    pub(super) packs: Option<Vec<u32>>,
    /// Rows (or packs) at its end that only repeat others.
    pub(super) padded: usize,
    /// Its first failed row, if it had any.
    failure: Option<Failure>,
}

impl Made {
    /// A batch without failed rows, of which the first `own` come here and others come again.
    pub(super) fn whole(members: RowBatch, packs: Option<Vec<u32>>, own: usize) -> Self {
        let padded = padded(members.len(), own, packs.as_deref());
        Self {
            members,
            packs,
            padded,
            failure: None,
        }
    }

    /// What a policy leaves of a batch.
    pub(super) fn settled(
        settled: Settled,
        packs: Option<Vec<u32>>,
        own: usize,
        failure: Option<Failure>,
    ) -> Result<Self> {
        let picks = settled.picks;
        let packs = packs.map(|packs| pack::left(&packs, &picks));
        let own = if picks.len() == settled.rows.len() {
            // Every row is in its place, or another one stands in for it there.
            own
        } else {
            // Rows that come again stand behind the others.
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

    /// Repeats rows (or packs) from the beginning, until there are so many.
    ///
    /// # Errors
    /// None is left to be repeated, as all failed.
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
                "every row of this rank's batch failed, so none can be repeated for it to be as long as those of the \
                 other ranks; the first: {}",
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

/// Rows (or packs) behind the first `own` rows of so many.
fn padded(rows: usize, own: usize, packs: Option<&[u32]>) -> usize {
    match packs {
        None => rows - own,
        // Packs come again all together.
        Some(packs) if own == 0 => packs.len(),
        Some(_) => 0,
    }
}
