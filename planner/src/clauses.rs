//! The training clauses that follow a query: order, batches, epochs, options.

use std::num::NonZeroU64;

/// How far rows may travel in a shuffle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Within windows of at least this many stored rows.
    Rows(NonZeroU64),
    /// Over all rows.
    Global,
}

/// Whom a batch size counts rows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BatchScope {
    /// `BATCH n [PER RANK]`: whole batches are dealt to the ranks in turn.
    #[default]
    PerRank,
    /// `BATCH n GLOBAL`: each batch is split over the ranks.
    Global,
}

/// What happens to the rows that do not fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Remainder {
    /// The last batch is short.
    #[default]
    Keep,
    /// `DROP REMAINDER`.
    Drop,
    /// `PAD REMAINDER`: the last batch is filled by repeating its rows.
    Pad,
}

/// `BATCH ..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Rows of a batch.
    pub rows: NonZeroU64,
    /// Per rank or over all ranks.
    pub scope: BatchScope,
    /// The last rows.
    pub remainder: Remainder,
}

/// `REPEAT [n] [CONTINUOUS]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repeat {
    /// Number of epochs; without end where `None`.
    pub epochs: Option<NonZeroU64>,
    /// Whether batches cross the ends of epochs.
    pub continuous: bool,
}

impl Default for Repeat {
    fn default() -> Self {
        Self {
            epochs: Some(NonZeroU64::MIN),
            continuous: false,
        }
    }
}

/// What happens when a row fails: `OPTIONS (on_error = '..')`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The run stops at the first failed row in stream order.
    #[default]
    Fail,
    /// The row's planned batch is shorter.
    Skip,
    /// The next good row of the batch stands in.
    Replace,
    /// The failed value is null.
    Null,
}

/// Which rewrites a user allows beyond exact ones: `OPTIONS (relax = '..')`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Relax {
    /// Same bytes, same order (`'none'`).
    #[default]
    Exact,
    /// Last bits may differ.
    Numeric,
    /// The order of rows may differ.
    Order,
    /// Other pixels of the same training value.
    Statistical,
}

/// Whether the written plan is rewritten: `OPTIONS (optimize = '..')`, `--optimize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Optimize {
    /// The plan runs as written.
    None,
    /// All rewrites of the allowed tiers.
    #[default]
    Default,
}

/// `OPTIONS (..)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Policy for failed rows.
    pub on_error: OnError,
    /// Allowed tiers.
    pub relax: Relax,
    /// Optimiser switch.
    pub optimize: Optimize,
}

/// The training clauses of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clauses {
    /// `SHUFFLE ..`; stored order where absent.
    pub shuffle: Option<Window>,
    /// `SEED s`; 0 where absent.
    pub seed: Option<u64>,
    /// `SKIP n`: rows dropped at the start of each epoch.
    pub skip: u64,
    /// `TAKE n`: rows kept of each epoch.
    pub take: Option<u64>,
    /// `BATCH ..`; where absent, rows come in batches of no planned size.
    pub batch: Option<Batch>,
    /// `REPEAT ..`.
    pub repeat: Repeat,
    /// `OPTIONS (..)`.
    pub options: Options,
}
