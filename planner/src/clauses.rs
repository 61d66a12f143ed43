//! The training clauses that follow a query: order, batches, epochs, options.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::position::Position;

/// The `SHUFFLE` clause: the number of rows that are shuffled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ShuffleWindow {
    /// Shuffles within windows of at least this many stored rows.
    Rows(NonZeroU64),
    /// Shuffles over all rows.
    Global,
}

/// The scope of a batch size: one rank, or all ranks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum BatchScope {
    /// `BATCH n [PER RANK]`: whole batches go to the ranks in turn.
    #[default]
    PerRank,
    /// `BATCH n GLOBAL`: each batch is split among the ranks.
    Global,
}

/// Handling of the last rows if they do not fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Remainder {
    /// The last batch has fewer rows.
    #[default]
    Keep,
    /// `DROP REMAINDER`: the last rows are dropped if they do not fill a batch.
    Drop,
    /// `PAD REMAINDER`: the last batch is filled by repeating the rows of that batch.
    Pad,
}

/// The size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BatchSize {
    /// `BATCH n`: a number of rows, or of packs if rows are packed.
    Rows(NonZeroU64),
    /// `BATCH BY TOKENS n ON column`: the maximum number of elements of all sequences of `column`
    /// in a batch. If `column` is padded, each sequence counts as long as the longest sequence of
    /// the batch.
    Tokens(NonZeroU64),
}

/// The `BATCH` clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchClause {
    /// The size of a batch.
    pub size: BatchSize,
    /// The scope of the size: one rank, or all ranks together.
    pub scope: BatchScope,
    /// Handling of the last rows if they do not fill a batch.
    pub remainder: Remainder,
}

impl Default for BatchClause {
    /// Batches of 256 rows, for a pipeline without a BATCH clause.
    fn default() -> Self {
        const ROWS: NonZeroU64 = NonZeroU64::new(256).unwrap();
        Self {
            size: BatchSize::Rows(ROWS),
            scope: BatchScope::default(),
            remainder: Remainder::default(),
        }
    }
}

impl BatchClause {
    /// Number of rows (or packs) of a full batch; `None` for `BATCH BY TOKENS`, whose size counts
    /// elements.
    pub const fn rows(&self) -> Option<u64> {
        match self.size {
            BatchSize::Rows(rows) => Some(rows.get()),
            BatchSize::Tokens(_) => None,
        }
    }
}

/// `PACK column INTO n`: concatenates sequences into packs of `n` elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pack {
    /// The column of sequences.
    pub column: String,
    /// Number of elements of a pack.
    pub into: NonZeroU64,
}

/// `BUCKET BY expression BOUNDARIES (..)`: each batch holds rows of one bucket. The expression is
/// planned with the query ([`Pipeline::bucketed`](crate::pipeline::Pipeline)).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Ascending boundaries. The first bucket holds the values below the first boundary. Each
    /// further bucket begins with the value of a boundary and ends before the next boundary, and
    /// the last bucket has no upper limit.
    pub boundaries: Vec<u64>,
}

/// `PAD column [TO n] [WITH value]`: pads the sequences of a batch to one length.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// The column of sequences.
    pub column: String,
    /// The padded length; if absent, the length of the longest sequence in the batch.
    pub to: Option<NonZeroU64>,
    /// The padding value, as the text of a number; 0 if absent.
    pub with: Option<String>,
}

/// Handling of the last step of an epoch (under CONTINUOUS, of the whole run) if there are fewer
/// batches left than ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum EqualSteps {
    /// A rank without a batch gets an empty batch (`'count'`).
    #[default]
    Count,
    /// The step is dropped for all ranks (`'drop'`).
    Drop,
    /// A rank without a batch gets its previous batch again (`'pad'`).
    Pad,
}

/// `REPEAT [n] [CONTINUOUS]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// Number of epochs; `None` repeats forever.
    pub epochs: Option<NonZeroU64>,
    /// True if batches may cross the ends of epochs.
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

/// The policy for failed rows: `OPTIONS (on_error = '..')`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OnError {
    /// The run stops at the first failed row in stream order.
    #[default]
    Fail,
    /// The failed row is left out, so the batch has fewer rows.
    Skip,
    /// The next row of the batch that did not fail replaces the failed row.
    Replace,
    /// The failed value becomes null.
    Null,
}

/// The changes of the stream that rewrites may make: `OPTIONS (relax = '..')`. Each variant also
/// allows the changes of the variants before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Relax {
    /// The stream has the same bytes in the same order as under the written plan (`'none'`).
    #[default]
    Exact,
    /// The last bits of values may differ.
    Numeric,
    /// The order of rows may differ.
    Order,
    /// Pixels may differ, but must be as useful for training.
    Statistical,
}

impl Relax {
    /// The value of the option `relax` in SQL.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Exact => "none",
            Self::Numeric => "numeric",
            Self::Order => "order",
            Self::Statistical => "statistical",
        }
    }
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

/// The optimiser switch: `OPTIONS (optimize = '..')`, `--optimize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Optimize {
    /// The plan runs as written, without rewrites.
    Off,
    /// The optimiser may apply every rewrite that [`Relax`] allows.
    #[default]
    Default,
}

/// The use of seek indexes of JPEG files: `OPTIONS (index = '..')`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum SeekIndexing {
    /// Every epoch reads the coded data of a file from its beginning.
    Off,
    /// A run of several epochs keeps the seek indexes of the files in memory, and its later epochs jump
    /// to the regions that they decode.
    #[default]
    Auto,
}

/// The `CACHE` clause: the operator whose output rows are cached in one epoch and reused in later
/// epochs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum CacheClause {
    /// `CACHE OFF`: no rows are cached.
    Off,
    /// `CACHE AUTO`: the optimiser chooses an operator, if caching pays at all.
    Auto,
    /// `CACHE AT step [FREEZING RANDOMNESS]`.
    At {
        /// Name of the operator: the name of a function, or of an output column.
        step: String,
        /// True if the cached rows repeat the random draws of the first epoch in every epoch.
        freezing: bool,
    },
}

/// The `OPTIONS` clause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineOptions {
    /// The policy for failed rows.
    pub on_error: OnError,
    /// The highest tier of rewrites that may be applied.
    pub relax: Relax,
    /// The optimiser switch.
    pub optimize: Optimize,
    /// The use of seek indexes.
    pub index: SeekIndexing,
    /// Names of disabled rewrite rules: `disable_rules = 'a, b'`.
    pub disable_rules: BTreeSet<String>,
    /// Directory, or object store URL, of the cache.
    pub cache_dir: Option<String>,
    /// Maximum size of the cache in bytes; unlimited if absent.
    pub cache_quota: Option<u64>,
    /// The price of keeping a byte in the cache, in picoseconds of one core. The default is 0: disk
    /// space that exists anyway costs nothing, and `cache_quota` limits the space used.
    pub cache_price: u64,
    /// Number of windows for which unfinished packs and buckets may hold rows: `horizon = 16`.
    /// After this number of windows, a pack or bucket is completed with the rows that it has.
    pub horizon: NonZeroU64,
    /// Handling of the last step if the number of batches is not a multiple of the number of ranks:
    /// `equal_steps = '..'`.
    pub equal_steps: EqualSteps,
    /// The error budget, `error_budget = 100` or `'1 %'`: the number of rows that may fail in each
    /// epoch, or their part of the epoch's rows, before the run stops. Not used if `on_error` is
    /// `'fail'`. Each rank, each loader worker and each resumed run counts its own failures.
    pub error_budget: Option<ErrorBudget>,
    /// Folder of the dead-letter table: `dead_letters = 'path'`.
    pub dead_letters: Option<String>,
    /// Maximum size, in bytes, of a failed row's input that the dead-letter table stores. Larger
    /// inputs are left out. If this option is absent, all inputs are left out.
    pub dead_letter_bytes: Option<u64>,
}

impl Default for PipelineOptions {
    fn default() -> Self {
        const HORIZON: NonZeroU64 = NonZeroU64::new(16).unwrap();
        Self {
            on_error: OnError::default(),
            relax: Relax::default(),
            optimize: Optimize::default(),
            index: SeekIndexing::default(),
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

/// The number of rows of an epoch that may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorBudget {
    /// An absolute number of rows.
    Rows(u64),
    /// A fraction, in millionths, of the rows of an epoch. If the number of rows of an epoch is
    /// unknown, the fraction refers to the rows seen so far.
    Millionths(u32),
}

/// The training clauses of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clauses {
    /// `SHUFFLE ..`; if absent, rows keep their stored order.
    pub shuffle: Option<ShuffleWindow>,
    /// `SEED s`; 0 if absent.
    pub seed: Option<u64>,
    /// `SKIP n`: number of rows dropped at the start of each epoch.
    pub skip: u64,
    /// `TAKE n`: maximum number of rows of each epoch; all rows if absent.
    pub take: Option<u64>,
    /// The `PACK` clause.
    pub pack: Option<Pack>,
    /// The `BUCKET BY` clause.
    pub bucket: Option<Bucket>,
    /// The `BATCH` clause; if absent, the pipeline sets no batch size.
    pub batch: Option<BatchClause>,
    /// The column whose elements `BATCH BY TOKENS` counts.
    pub tokens_of: Option<String>,
    /// The columns of `PAD`.
    pub pad: Vec<Pad>,
    /// `REPEAT ..`.
    pub repeat: Repeat,
    /// `CACHE ..`; if absent, [`CacheClause::Auto`] applies if the option `cache_dir` is set.
    pub cache: Option<CacheClause>,
    /// `OPTIONS (..)`.
    pub options: PipelineOptions,
}

impl Clauses {
    /// The column whose sequence lengths PACK or BATCH BY TOKENS needs; `None` without these
    /// clauses.
    pub fn length_of(&self) -> Option<&String> {
        let packed = self.pack.as_ref().map(|pack| &pack.column);
        packed.or(self.tokens_of.as_ref())
    }

    /// The column names in the clauses, and the name after `CACHE AT`, which may also be the name
    /// of a function.
    pub(crate) fn column_names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let step = match &mut self.cache {
            Some(CacheClause::At { step, .. }) => Some(step),
            _ => None,
        };
        let packed = self.pack.iter_mut().map(|pack| &mut pack.column);
        let padded = self.pad.iter_mut().map(|pad| &mut pad.column);
        packed.chain(&mut self.tokens_of).chain(padded).chain(step)
    }

    /// True for `FREEZING RANDOMNESS`: the cache keeps random draws, and thereby changes the
    /// meaning of the stream.
    pub const fn freezes(&self) -> bool {
        matches!(self.cache, Some(CacheClause::At { freezing: true, .. }))
    }
}

/// Positions of the clauses in the pipeline's text; `None` for an absent clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClausePositions {
    /// Position of `SHUFFLE`.
    pub shuffle: Option<Position>,
    /// Position of `SEED`.
    pub seed: Option<Position>,
    /// Position of `SKIP`.
    pub skip: Option<Position>,
    /// Position of `TAKE`.
    pub take: Option<Position>,
    /// Position of `PACK` or `BUCKET`.
    pub group: Option<Position>,
    /// Position of `BATCH`.
    pub batch: Option<Position>,
    /// Position of `REPEAT`.
    pub repeat: Option<Position>,
    /// Position of `CACHE`.
    pub cache: Option<Position>,
    /// Position of `OPTIONS`.
    pub options: Option<Position>,
}
