//! Assignment of batches to ranks: arithmetic, without data.
//!
//! Batches are numbered over all ranks, from the beginning of the span or from the position at
//! which the run resumes. Batch `b` goes to rank `b mod world`. With `GLOBAL`, every batch is split
//! over all ranks instead.

use std::ops::Range;

use forebay_planner::clauses::{BatchClause, BatchScope, Clauses, EqualSteps, Remainder};

/// The rule that decides which batches, or which shares of batches, belong to a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankAssignment {
    /// The BATCH clause: the size of batches, whether a size is per rank or global, and the handling
    /// of a last batch that is not full.
    pub batch: BatchClause,
    /// Treatment of the last step if the number of batches is not a multiple of the number of
    /// ranks.
    pub equal_steps: EqualSteps,
    /// This rank, from 0.
    pub rank: u64,
    /// Number of ranks.
    pub world: u64,
    /// True if short batches are filled up with repeated rows until all ranks have equally many
    /// rows in each step.
    pub pads_ranks: bool,
}

/// Treatment of a step in which ranks would have different numbers of rows, in addition to the
/// treatment that the pipeline specifies. This is a setting of a run, and is part of no hash or
/// token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Uneven {
    /// Each rank gets its share of the rows, which may be empty.
    #[default]
    Keep,
    /// Each rank gets as many rows as the rank with the most rows. A rank with fewer rows repeats
    /// rows of its batch. A rank without a batch takes rows of the step's first batch.
    /// [`Batch::padded`](crate::tail::Batch::padded) counts the added rows.
    Pad,
    /// A step in which some rank would have no batch is dropped.
    Drop,
}

impl RankAssignment {
    /// Returns the assignment for rank `rank` of `world` ranks that run a pipeline with these
    /// clauses.
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

    /// Returns the number of batches in a step, over all ranks.
    pub const fn batches_per_step(&self) -> u64 {
        match self.batch.scope {
            BatchScope::PerRank => self.world,
            BatchScope::Global => 1,
        }
    }

    /// Returns true if batch number `batch`, or a share of that batch, belongs to this rank.
    pub const fn is_mine(&self, batch: u64) -> bool {
        match self.batch.scope {
            BatchScope::PerRank => batch % self.world == self.rank,
            BatchScope::Global => true,
        }
    }

    /// Returns this rank's share of a batch of `rows` rows (or packs), as a range of indices. With
    /// `GLOBAL`, the shares of the ranks differ in size by at most one.
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

    /// Returns the size of the largest share of a batch of `rows` rows (or packs).
    pub const fn most(&self, rows: u64) -> u64 {
        match self.batch.scope {
            BatchScope::PerRank => rows,
            BatchScope::Global => rows.div_ceil(self.world),
        }
    }

    /// Returns the number of rows (or packs) in a full batch of this rank; `None` if the size of
    /// batches is given in elements.
    pub fn full(&self) -> Option<u64> {
        let share = self.share(self.batch.rows()?);
        Some(share.end - share.start)
    }

    /// Returns the number of batches that `total` consecutive rows make; `None` if the size of
    /// batches is given in elements.
    pub fn batches(&self, total: u64) -> Option<u64> {
        let rows = self.batch.rows()?;
        Some(match self.batch.remainder {
            Remainder::Drop => total / rows,
            Remainder::Keep | Remainder::Pad => total.div_ceil(rows),
        })
    }

    /// Returns the number of steps that each rank takes if all ranks together have `batches`
    /// batches. If the last step would have no batch for some ranks, `equal_steps` decides whether
    /// that step is dropped.
    pub fn steps(&self, batches: u64) -> u64 {
        match self.equal_steps {
            EqualSteps::Drop => batches / self.batches_per_step(),
            EqualSteps::Count | EqualSteps::Pad => batches.div_ceil(self.batches_per_step()),
        }
    }

    /// Returns the number of ranks without a batch in the last step, if all ranks together have
    /// `batches` batches.
    pub fn idle(&self, batches: u64) -> u64 {
        let step = self.batches_per_step();
        match self.equal_steps {
            EqualSteps::Drop => 0,
            EqualSteps::Count | EqualSteps::Pad => (step - batches % step) % step,
        }
    }
}

/// The share of a rank's batches that a run yields: the batch at step `first`, and every `of`-th
/// batch after that batch. The workers of a data loader run with different strides, and together
/// yield every batch of the rank once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerStride {
    /// Number of steps before the run's first batch, counted from the position at which the run
    /// begins or resumes.
    pub first: u64,
    /// Number of steps from each of the run's batches to the run's next batch.
    pub of: u64,
}

impl Default for WorkerStride {
    fn default() -> Self {
        Self::ALL
    }
}

impl WorkerStride {
    /// The stride of a run that yields every batch of its rank.
    pub const ALL: Self = Self { first: 0, of: 1 };

    /// Returns true if the run yields the batch of step `step`. Steps are counted from the position
    /// at which the run begins or resumes.
    pub const fn has(&self, step: u64) -> bool {
        step >= self.first && (step - self.first).is_multiple_of(self.of)
    }

    /// Returns the step of the run's `nth` batch, where `nth` counts from 0.
    pub const fn step(&self, nth: u64) -> u64 {
        self.first.saturating_add(self.of.saturating_mul(nth))
    }

    /// Returns how many of the first `steps` steps the run yields.
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
        /// The shares of all ranks partition a batch, for any number of ranks. A rank's share of a
        /// full batch has the size that `full` returns.
        #[test]
        fn ranks_partition_batches(rows in 1_u64..40, batch in 0_u64..100, world in 1_u64..9, global: bool) {
            let scope = if global { BatchScope::Global } else { BatchScope::PerRank };
            let mut clauses = Clauses::default();
            let size = BatchSize::Rows(rows.try_into().unwrap());
            clauses.batch = Some(BatchClause { size, scope, remainder: Remainder::Keep });
            let (mut at, mut owners) = (0, 0);
            for rank in 0..world {
                let ranks = RankAssignment::new(&clauses, rank, world, Uneven::Keep);
                if ranks.is_mine(batch) {
                    owners += 1;
                    let share = ranks.share(rows);
                    prop_assert_eq!(share.end - share.start, ranks.full().unwrap());
                    prop_assert!(share.end - share.start <= ranks.most(rows));
                    prop_assert_eq!(share.start, at);
                    at = share.end;
                }
            }
            prop_assert_eq!(at, rows);
            prop_assert_eq!(owners, if global { world } else { 1 });
        }

        /// The number of steps times the number of ranks is the number of batches, plus the idle
        /// ranks of the last step, or minus the batches that `EqualSteps::Drop` leaves out.
        #[test]
        fn steps_hold_the_batches(batches in 0_u64..500, world in 1_u64..9, drop: bool) {
            let mut clauses = Clauses::default();
            clauses.options.equal_steps = if drop { EqualSteps::Drop } else { EqualSteps::Count };
            let ranks = RankAssignment::new(&clauses, 0, world, Uneven::Keep);
            let held = ranks.steps(batches) * world;
            if drop {
                prop_assert!(held <= batches && batches - held < world);
            } else {
                prop_assert_eq!(held, batches + ranks.idle(batches));
            }
        }

        /// Runs with different strides yield every step once, in turn.
        #[test]
        fn strides_partition_the_steps(steps in 0_u64..100, of in 1_u64..9) {
            let mut all = 0;
            for first in 0..of {
                let stride = WorkerStride { first, of };
                let mine: Vec<u64> = (0..steps).filter(|&step| stride.has(step)).collect();
                prop_assert_eq!(stride.among(steps), mine.len() as u64);
                for (nth, step) in (0..).zip(&mine) {
                    prop_assert_eq!(stride.step(nth), *step);
                }
                all += mine.len() as u64;
            }
            prop_assert_eq!(all, steps);
        }
    }
}
