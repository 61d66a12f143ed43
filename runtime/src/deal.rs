//! Dealing batches to ranks: arithmetic, no data.
//!
//! Batches are numbered over all ranks, from where the stream began or went on. Batch `b` goes to rank
//! `b mod world`; `GLOBAL` splits every batch over the ranks instead.

use std::ops::Range;

use forebay_planner::clauses::{Batch, BatchScope, Clauses, EqualSteps, Remainder};

/// Which batches a rank gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deal {
    /// Size, scope and remainder of batches.
    pub batch: Batch,
    /// What becomes of the last step where batches do not divide by ranks.
    pub equal_steps: EqualSteps,
    /// This rank, from 0.
    pub rank: u64,
    /// Number of ranks.
    pub world: u64,
    /// Rows repeat until the ranks have equally many in each step.
    pub pads_ranks: bool,
}

/// What ranks get in a step whose rows do not divide by ranks, beyond what the pipeline says. It is a setting of
/// a run: no hash and no token knows of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Uneven {
    /// What is left for them, perhaps nothing.
    #[default]
    Keep,
    /// As many rows as the rank that has most of them: the batch's own rows once more, or where it has none, those
    /// of the step's first batch. [`Batch::padded`](crate::tail::Batch::padded) counts them.
    Pad,
    /// No step in which a rank has no batch.
    Drop,
}

impl Deal {
    /// The deal of a pipeline for one rank.
    pub fn new(clauses: &Clauses, rank: u64, world: u64, uneven: Uneven) -> Self {
        Self {
            batch: clauses.batch.unwrap_or_default(),
            equal_steps: match uneven {
                Uneven::Drop => EqualSteps::Drop,
                Uneven::Keep | Uneven::Pad => clauses.options.equal_steps,
            },
            rank,
            world,
            pads_ranks: uneven == Uneven::Pad && world > 1,
        }
    }

    /// Batches over all ranks that a step takes.
    pub const fn batches_per_step(&self) -> u64 {
        match self.batch.scope {
            BatchScope::PerRank => self.world,
            BatchScope::Global => 1,
        }
    }

    /// Whether this rank gets a batch, or a part of it.
    pub const fn is_mine(&self, batch: u64) -> bool {
        match self.batch.scope {
            BatchScope::PerRank => batch % self.world == self.rank,
            BatchScope::Global => true,
        }
    }

    /// This rank's part of a batch of so many rows (or packs); parts differ by one at most.
    pub fn share(&self, rows: u64) -> Range<u64> {
        match self.batch.scope {
            BatchScope::PerRank => 0..rows,
            BatchScope::Global => {
                let cut = |rank: u64| {
                    (u128::from(rows) * u128::from(rank) / u128::from(self.world)) as u64
                };
                cut(self.rank)..cut(self.rank + 1)
            }
        }
    }

    /// Rows (or packs) that the rank with most of them has of a batch of so many.
    pub const fn most(&self, rows: u64) -> u64 {
        match self.batch.scope {
            BatchScope::PerRank => rows,
            BatchScope::Global => rows.div_ceil(self.world),
        }
    }

    /// Rows (or packs) of a full batch of this rank; `None` where elements are counted.
    pub fn full(&self) -> Option<u64> {
        let share = self.share(self.batch.rows()?);
        Some(share.end - share.start)
    }

    /// Number of batches that `total` rows make, where they stand one after the other.
    pub fn batches(&self, total: u64) -> Option<u64> {
        let rows = self.batch.rows()?;
        Some(match self.batch.remainder {
            Remainder::Drop => total / rows,
            Remainder::Keep | Remainder::Pad => total.div_ceil(rows),
        })
    }

    /// Number of steps in which every rank takes part in so many batches: the same for all of them. Where
    /// batches do not divide by ranks, `equal_steps` says what the ranks left over in the last step do.
    pub fn steps(&self, batches: u64) -> u64 {
        match self.equal_steps {
            EqualSteps::Drop => batches / self.batches_per_step(),
            EqualSteps::Count | EqualSteps::Pad => batches.div_ceil(self.batches_per_step()),
        }
    }

    /// Ranks for which the last step has no batch.
    pub fn idle(&self, batches: u64) -> u64 {
        let step = self.batches_per_step();
        match self.equal_steps {
            EqualSteps::Drop => 0,
            EqualSteps::Count | EqualSteps::Pad => (step - batches % step) % step,
        }
    }
}

/// Which of a rank's batches a run gives: one, and every `of`-th after it. Runs that take turns, as the workers
/// of a loader do, have all of them together, and none computes what another one gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// Steps before the run's first batch, from where it begins or goes on.
    pub first: u64,
    /// From one of its batches to the next.
    pub of: u64,
}

impl Turns {
    /// Whether a step is the run's, counted from where it begins or goes on.
    pub const fn has(&self, step: u64) -> bool {
        step >= self.first && (step - self.first).is_multiple_of(self.of)
    }

    /// The step of the run's `nth` batch.
    pub const fn step(&self, nth: u64) -> u64 {
        self.first.saturating_add(self.of.saturating_mul(nth))
    }

    /// How many of so many steps are the run's.
    pub const fn among(&self, steps: u64) -> u64 {
        steps.saturating_sub(self.first).div_ceil(self.of)
    }
}

#[cfg(test)]
mod tests {
    use forebay_planner::clauses::BatchSize;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The parts of the ranks are the whole, whatever the world; full parts are as large as said.
        #[test]
        fn ranks_partition_batches(rows in 1_u64..40, batch in 0_u64..100, world in 1_u64..9, global: bool) {
            let scope = if global { BatchScope::Global } else { BatchScope::PerRank };
            let mut clauses = Clauses::default();
            let size = BatchSize::Rows(rows.try_into().unwrap());
            clauses.batch = Some(Batch { size, scope, remainder: Remainder::Keep });
            let (mut at, mut owners) = (0, 0);
            for rank in 0..world {
                let deal = Deal::new(&clauses, rank, world, Uneven::Keep);
                if deal.is_mine(batch) {
                    owners += 1;
                    let share = deal.share(rows);
                    prop_assert_eq!(share.end - share.start, deal.full().unwrap());
                    prop_assert!(share.end - share.start <= deal.most(rows));
                    prop_assert_eq!(share.start, at);
                    at = share.end;
                }
            }
            prop_assert_eq!(at, rows);
            prop_assert_eq!(owners, if global { world } else { 1 });
        }

        /// Steps and the ranks that are idle in the last of them account for every batch.
        #[test]
        fn steps_hold_the_batches(batches in 0_u64..500, world in 1_u64..9, drop: bool) {
            let mut clauses = Clauses::default();
            clauses.options.equal_steps = if drop { EqualSteps::Drop } else { EqualSteps::Count };
            let deal = Deal::new(&clauses, 0, world, Uneven::Keep);
            let held = deal.steps(batches) * world;
            if drop {
                prop_assert!(held <= batches && batches - held < world);
            } else {
                prop_assert_eq!(held, batches + deal.idle(batches));
            }
        }

        /// Runs that take turns have every step once, in turn.
        #[test]
        fn turns_hold_the_steps(steps in 0_u64..100, of in 1_u64..9) {
            let mut all = 0;
            for first in 0..of {
                let turns = Turns { first, of };
                let mine: Vec<u64> = (0..steps).filter(|&step| turns.has(step)).collect();
                prop_assert_eq!(turns.among(steps), mine.len() as u64);
                for (nth, step) in (0..).zip(&mine) {
                    prop_assert_eq!(turns.step(nth), *step);
                }
                all += mine.len() as u64;
            }
            prop_assert_eq!(all, steps);
        }
    }
}
