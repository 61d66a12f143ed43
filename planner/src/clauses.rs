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

/// How much a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchSize {
    /// `BATCH n`: rows, or packs where rows are packed.
    Rows(NonZeroU64),
    /// `BATCH BY TOKENS n ON column`: at most so many elements of the column's sequences, which count as long as
    /// the longest of the batch where the column is padded.
    Tokens(NonZeroU64),
}

/// `BATCH ..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Batch {
    /// How much a batch holds.
    pub size: BatchSize,
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
            size: BatchSize::Rows(ROWS),
            scope: BatchScope::default(),
            remainder: Remainder::default(),
        }
    }
}

impl Batch {
    /// Rows (or packs) of a full batch; `None` where elements are counted.
    pub const fn rows(&self) -> Option<u64> {
        match self.size {
            BatchSize::Rows(rows) => Some(rows.get()),
            BatchSize::Tokens(_) => None,
        }
    }
}

/// `PACK column INTO n`: sequences put end to end into packs of `n` elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pack {
    /// The column of sequences.
    pub column: String,
    /// Elements of a pack.
    pub into: NonZeroU64,
}

/// `BUCKET BY expression BOUNDARIES (..)`: a batch holds rows of one bucket. The expression is planned with
/// the query ([`Pipeline::bucketed`](crate::pipeline::Pipeline)).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Ascending; bucket `i` holds the values below boundary `i` that no bucket before it holds, and the last
    /// one the others.
    pub boundaries: Vec<u64>,
}

/// `PAD column [TO n] [WITH value]`: the sequences of a batch made equally long.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pad {
    /// The column of sequences.
    pub column: String,
    /// Elements of each; as many as the longest of the batch has where absent.
    pub to: Option<NonZeroU64>,
    /// What is appended, as text of a number; 0 where absent.
    pub with: Option<String>,
}

/// What a rank does in the last step of a span if no batch is left for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EqualSteps {
    /// It gets a batch of no rows (`'count'`).
    #[default]
    Count,
    /// The step is left out, for all ranks (`'drop'`).
    Drop,
    /// It gets its batch before once more (`'pad'`).
    Pad,
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Windows after which packs and buckets hold no rows open: `horizon = 16`.
    pub horizon: NonZeroU64,
    /// What becomes of the last step where batches do not divide by ranks: `equal_steps = '..'`.
    pub equal_steps: EqualSteps,
    /// Rows of an epoch that may fail before a run stops, under any `on_error` but `'fail'`: `error_budget = 100` or
    /// `'1 %'`. Each run counts its own: each rank, each worker of a loader, and anew where one goes on.
    pub error_budget: Option<ErrorBudget>,
    /// Folder for a table of the failed rows: `dead_letters = 'path'`.
    pub dead_letters: Option<String>,
    /// Largest input of a failed row that is kept in that table, in bytes; none where absent.
    pub dead_letter_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        const HORIZON: NonZeroU64 = NonZeroU64::new(16).unwrap();
        Self {
            on_error: OnError::default(),
            relax: Relax::default(),
            optimize: Optimize::default(),
            disable_rules: BTreeSet::new(),
            cache_dir: None,
            cache_quota: None,
            cache_price: 0,
            horizon: HORIZON,
            equal_steps: EqualSteps::default(),
            error_budget: None,
            dead_letters: None,
            dead_letter_bytes: None,
        }
    }
}

/// How many rows of an epoch may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorBudget {
    /// So many.
    Rows(u64),
    /// So many of a million rows that were seen.
    Millionths(u32),
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
    /// `PACK ..`.
    pub pack: Option<Pack>,
    /// `BUCKET ..`.
    pub bucket: Option<Bucket>,
    /// `BATCH ..`; where absent, rows come in batches of no planned size.
    pub batch: Option<Batch>,
    /// The column whose elements `BATCH BY TOKENS` counts.
    pub tokens_of: Option<String>,
    /// `PAD column ..`.
    pub pad: Vec<Pad>,
    /// `REPEAT ..`.
    pub repeat: Repeat,
    /// `CACHE ..`; where absent, [`Cache::Auto`] if there is a `cache_dir`.
    pub cache: Option<Cache>,
    /// `OPTIONS (..)`.
    pub options: Options,
}

impl Clauses {
    /// The column whose sequences are counted, by PACK or by BATCH BY TOKENS.
    pub fn length_of(&self) -> Option<&String> {
        let packed = self.pack.as_ref().map(|pack| &pack.column);
        packed.or(self.tokens_of.as_ref())
    }

    /// The names of columns in the clauses.
    pub(crate) fn column_names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let step = match &mut self.cache {
            Some(Cache::At { step, .. }) => Some(step),
            _ => None,
        };
        let packed = self.pack.iter_mut().map(|pack| &mut pack.column);
        let padded = self.pad.iter_mut().map(|pad| &mut pad.column);
        packed.chain(&mut self.tokens_of).chain(padded).chain(step)
    }

    /// Whether draws below the cache are kept: then it is part of what the rows are.
    pub const fn freezes(&self) -> bool {
        matches!(self.cache, Some(Cache::At { freezing: true, .. }))
    }
}
