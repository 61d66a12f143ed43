//! Dealing rows to batches and batches to ranks: arithmetic over ordinals, no data.
//!
//! The ordinal of a row is its place among the rows of an epoch that the query keeps, after SKIP and
//! TAKE, before any failure. Global batch `b` goes to rank `b mod world`; `GLOBAL` splits every batch
//! over the ranks instead.

use std::ops::Range;

use forebay_planner::clauses::{Batch, BatchScope, Remainder};

/// Which rows a rank gets at which step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deal {
    /// Rows of a batch (of a global one under `GLOBAL`).
    pub rows: u64,
    /// Per rank or over all ranks.
    pub scope: BatchScope,
    /// What happens to the last rows.
    pub remainder: Remainder,
    /// This rank, from 0.
    pub rank: u64,
    /// Number of ranks.
    pub world: u64,
}

impl Deal {
    /// The deal of a BATCH clause for one rank.
    pub fn new(batch: Option<Batch>, rank: u64, world: u64) -> Self {
        let Batch {
            rows,
            scope,
            remainder,
        } = batch.unwrap_or_default();
        Self {
            rows: rows.get(),
            scope,
            remainder,
            rank,
            world,
        }
    }

    /// Number of global batches that `total` rows make.
    pub fn batches(&self, total: u64) -> u64 {
        match self.remainder {
            Remainder::Drop => total / self.rows,
            Remainder::Keep | Remainder::Pad => total.div_ceil(self.rows),
        }
    }

    /// Number of steps that every rank takes over `total` rows: the same for all of them. Where
    /// batches do not divide by ranks, the ranks left over in the last round step with no rows (or,
    /// with `PAD REMAINDER`, with repeated ones).
    pub fn steps(&self, total: u64) -> u64 {
        match self.scope {
            BatchScope::PerRank => self.batches(total).div_ceil(self.world),
            BatchScope::Global => self.batches(total),
        }
    }

    /// The ordinals of this rank's rows at `step`; empty where the rank has none.
    pub fn range(&self, step: u64, total: u64) -> Range<u64> {
        let batch = match self.scope {
            BatchScope::PerRank => step.saturating_mul(self.world).saturating_add(self.rank),
            BatchScope::Global => step,
        };
        let used = match self.remainder {
            Remainder::Drop => total - total % self.rows,
            Remainder::Keep | Remainder::Pad => total,
        };
        let start = batch.saturating_mul(self.rows).min(used);
        let end = start.saturating_add(self.rows).min(used);
        match self.scope {
            BatchScope::PerRank => start..end,
            BatchScope::Global => {
                let share = self.share(end - start);
                start + share.start..start + share.end
            }
        }
    }

    /// Rows of a full batch of this rank.
    pub fn full(&self) -> u64 {
        match self.scope {
            BatchScope::PerRank => self.rows,
            BatchScope::Global => {
                let share = self.share(self.rows);
                share.end - share.start
            }
        }
    }

    /// This rank's part of a global batch of `rows` rows; parts differ by one row at most.
    fn share(&self, rows: u64) -> Range<u64> {
        let cut = |rank: u64| (u128::from(rows) * u128::from(rank) / u128::from(self.world)) as u64;
        cut(self.rank)..cut(self.rank + 1)
    }

    /// The step at which this rank takes `ordinal`; `None` where another rank or nobody does.
    pub fn step_of(&self, ordinal: u64, total: u64) -> Option<u64> {
        let batch = ordinal / self.rows;
        let step = match self.scope {
            BatchScope::PerRank => {
                if batch % self.world != self.rank {
                    return None;
                }
                batch / self.world
            }
            BatchScope::Global => batch,
        };
        self.range(step, total).contains(&ordinal).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The union over the ranks is the global stream, whatever the world; steps are equal.
        #[test]
        fn ranks_partition_the_stream(
            total in 0_u64..500, rows in 1_u64..40, world in 1_u64..9, global: bool, drop: bool,
        ) {
            let scope = if global { BatchScope::Global } else { BatchScope::PerRank };
            let remainder = if drop { Remainder::Drop } else { Remainder::Keep };
            let deal = |rank| Deal { rows, scope, remainder, rank, world };
            let used = if drop { total - total % rows } else { total };
            let mut seen = vec![0; total as usize];
            for rank in 0..world {
                let deal = deal(rank);
                prop_assert_eq!(deal.steps(total), Deal { rank: 0, ..deal }.steps(total));
                for step in 0..deal.steps(total) {
                    for ordinal in deal.range(step, total) {
                        seen[ordinal as usize] += 1;
                        prop_assert_eq!(deal.step_of(ordinal, total), Some(step));
                    }
                }
                prop_assert!(deal.range(deal.steps(total), total).is_empty());
            }
            for (ordinal, times) in seen.into_iter().enumerate() {
                prop_assert_eq!(times, u64::from((ordinal as u64) < used));
            }
        }

        /// Under GLOBAL the rows of a step are the same at every world.
        #[test]
        fn global_steps_hold_the_same_rows_at_every_world(
            total in 1_u64..500, rows in 1_u64..40, world in 1_u64..9, step in 0_u64..20,
        ) {
            let deal = |rank, world| Deal {
                rows, scope: BatchScope::Global, remainder: Remainder::Keep, rank, world,
            };
            let whole: Vec<u64> = deal(0, 1).range(step, total).collect();
            let parts: Vec<u64> =
                (0..world).flat_map(|rank| deal(rank, world).range(step, total)).collect();
            prop_assert_eq!(whole, parts);
        }
    }
}
