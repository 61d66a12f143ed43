//! The training clauses that follow a query: order, batches, epochs, options.

use std::collections::BTreeSet;
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

impl Default for Batch {
    /// The batches of a pipeline that has no BATCH clause.
    fn default() -> Self {
        const ROWS: NonZeroU64 = NonZeroU64::new(256).unwrap();
        Self {
            rows: ROWS,
            scope: BatchScope::default(),
            remainder: Remainder::default(),
        }
    }
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

impl std::fmt::Display for Relax {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Numeric => "numeric",
            Self::Order => "order",
            Self::Statistical => "statistical",
        })
    }
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

/// `CACHE ..`: where rows are kept from epoch to epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Cache {
    /// `CACHE OFF`: nowhere.
    Off,
    /// `CACHE AUTO`: where it pays, if it does.
    Auto,
    /// `CACHE AT step [FREEZING RANDOMNESS]`.
    At {
        /// The name of a function, or of an output column.
        step: String,
        /// Whether the draws of the first epoch are kept with the rows.
        freezing: bool,
    },
}

/// `OPTIONS (..)`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Policy for failed rows.
    pub on_error: OnError,
    /// Allowed tiers.
    pub relax: Relax,
    /// Optimiser switch.
    pub optimize: Optimize,
    /// Names of rewrite rules that are left out: `disable_rules = 'a, b'`.
    pub disable_rules: BTreeSet<String>,
    /// Directory, or URL of an object store, of cached rows.
    pub cache_dir: Option<String>,
    /// Bytes that cached rows may take there.
    pub cache_quota: Option<u64>,
    /// Picoseconds of one core that keeping a byte there is worth, for as long as it is kept. Nothing by
    /// default: on a disk that is there anyway, rows cost no more than their room, which the quota limits.
    pub cache_price: u64,
}

/// The training clauses of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// `CACHE ..`; where absent, [`Cache::Auto`] if there is a `cache_dir`.
    pub cache: Option<Cache>,
    /// `OPTIONS (..)`.
    pub options: Options,
}

impl Clauses {
    /// Whether draws below the cache are kept: then it is part of what the rows are.
    pub const fn freezes(&self) -> bool {
        matches!(self.cache, Some(Cache::At { freezing: true, .. }))
    }
}
