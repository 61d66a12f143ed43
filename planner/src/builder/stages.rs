//! Checks of the order of a builder's calls.

use std::num::NonZeroU64;

use crate::clauses::{
    self, BatchClause, BatchScope, BatchSize, Bucket, Clauses, Pack, Pad, Remainder, Repeat,
};
use crate::error::{PlanError, Result};

/// The argument of `shuffle`: the number of rows that are shuffled together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowSize {
    /// Shuffles within windows of at least this many stored rows: `WITHIN n ROWS`.
    Rows(u64),
    /// Shuffles over all rows: `GLOBALLY`.
    Global,
}

impl WindowSize {
    /// Windows of at least this many stored rows, which must be above 0.
    pub const fn rows(rows: u64) -> Self {
        Self::Rows(rows)
    }

    /// One window of all rows.
    pub const fn global() -> Self {
        Self::Global
    }
}

/// The kind of the last builder call. Calls must come in the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum BuilderStage {
    #[default]
    Rows,
    Shuffle,
    Skip,
    Take,
    Group,
    /// `repeat` was called before `batch`.
    Continuous,
    Batch,
    Repeat,
}

impl BuilderStage {
    const fn name(self) -> &'static str {
        match self {
            Self::Rows => "select",
            Self::Shuffle => "shuffle",
            Self::Skip => "skip",
            Self::Take => "take",
            Self::Group => "pack or bucket_by",
            Self::Batch => "batch",
            Self::Continuous | Self::Repeat => "repeat",
        }
    }
}

/// The clauses that the builder calls so far describe, and the error of the first wrong call.
#[derive(Debug, Clone, Default)]
pub(super) struct Stages {
    pub(super) clauses: Clauses,
    stage: BuilderStage,
    seeded: bool,
    mistake: Option<String>,
}

impl Stages {
    /// Creates the state of a builder that continues a pipeline with these `clauses`.
    pub(super) fn after(clauses: Clauses) -> Self {
        let repeats = clauses.repeat != Repeat::default();
        let stage = match &clauses {
            Clauses { batch: Some(_), .. } if repeats => BuilderStage::Repeat,
            Clauses { batch: Some(_), .. } => BuilderStage::Batch,
            _ if repeats => BuilderStage::Continuous,
            Clauses { pack: Some(_), .. }
            | Clauses {
                bucket: Some(_), ..
            } => BuilderStage::Group,
            Clauses { take: Some(_), .. } => BuilderStage::Take,
            Clauses { skip: 1.., .. } => BuilderStage::Skip,
            Clauses {
                shuffle: Some(_), ..
            } => BuilderStage::Shuffle,
            _ => BuilderStage::Rows,
        };
        Self {
            seeded: clauses.seed.is_some(),
            clauses,
            stage,
            mistake: None,
        }
    }

    /// Returns the clauses, or the error of the first wrong call.
    pub(super) fn finish(&self) -> Result<Clauses> {
        match &self.mistake {
            Some(message) => Err(PlanError::mistake(message.clone())),
            None => Ok(self.clauses.clone()),
        }
    }

    fn fail(&mut self, message: String) {
        self.mistake.get_or_insert(message);
    }

    fn enter(&mut self, stage: BuilderStage) {
        if stage == self.stage {
            self.fail(format!("{} is called twice", stage.name()));
        } else if stage < self.stage {
            self.fail(format!(
                "{} must come before {}",
                stage.name(),
                self.stage.name()
            ));
        } else {
            self.stage = stage;
        }
    }

    fn size(&mut self, call: &str, of: &str, value: u64) -> NonZeroU64 {
        NonZeroU64::new(value).unwrap_or_else(|| {
            self.fail(format!(
                "{call} expects a number of {of} of at least 1, found 0"
            ));
            NonZeroU64::MIN
        })
    }

    /// Records `call`, a call that changes the set of rows. Such a call may follow `shuffle`,
    /// because a shuffle orders rows by their keys and so commutes with the call. It may not follow
    /// a call that counts rows, such as `take`.
    pub(super) fn relational(&mut self, call: &str) {
        if self.stage > BuilderStage::Shuffle {
            self.fail(format!("{call} must come before {}", self.stage.name()));
        }
    }

    /// Records `call`, a call that computes columns row by row.
    pub(super) fn row_wise(&mut self, call: &str) {
        if self.stage > BuilderStage::Take {
            self.fail(format!("{call} must come before {}", self.stage.name()));
        }
    }

    pub(super) fn shuffle(&mut self, window: WindowSize, seed: u64) {
        self.window(window);
        self.seed(seed);
    }

    pub(super) fn window(&mut self, window: WindowSize) {
        self.enter(BuilderStage::Shuffle);
        self.clauses.shuffle = Some(match window {
            WindowSize::Rows(rows) => {
                clauses::ShuffleWindow::Rows(self.size("WindowSize::rows", "rows", rows))
            }
            WindowSize::Global => clauses::ShuffleWindow::Global,
        });
    }

    pub(super) fn seed(&mut self, seed: u64) {
        if self.seeded {
            self.fail("the seed is set twice".to_owned());
        }
        self.seeded = true;
        self.clauses.seed = Some(seed);
    }

    pub(super) fn skip(&mut self, rows: u64) {
        self.enter(BuilderStage::Skip);
        self.clauses.skip = rows;
    }

    pub(super) fn take(&mut self, rows: u64) {
        self.enter(BuilderStage::Take);
        self.clauses.take = Some(self.size("take", "rows", rows).get());
    }

    pub(super) fn batch(&mut self, rows: u64) {
        if self.stage == BuilderStage::Continuous {
            self.clauses.repeat.continuous = true;
        }
        self.enter(BuilderStage::Batch);
        self.clauses.batch = Some(BatchClause {
            size: BatchSize::Rows(self.size("batch", "rows", rows)),
            scope: BatchScope::PerRank,
            remainder: Remainder::Keep,
        });
    }

    pub(super) fn batch_by_tokens(&mut self, tokens: u64, column: String) {
        self.batch(1);
        let size = BatchSize::Tokens(self.size("batch_by_tokens", "tokens", tokens));
        if let Some(batch) = &mut self.clauses.batch {
            batch.size = size;
        }
        self.clauses.tokens_of = Some(column);
    }

    pub(super) fn pack(&mut self, column: String, elements: u64) {
        self.enter(BuilderStage::Group);
        let into = self.size("pack", "elements", elements);
        self.clauses.pack = Some(Pack { column, into });
    }

    pub(super) fn bucket(&mut self, boundaries: Vec<u64>) {
        self.enter(BuilderStage::Group);
        if boundaries.is_empty() || !boundaries.is_sorted_by(|a, b| a < b) {
            self.fail("bucket_by expects one or more boundaries in ascending order".to_owned());
        }
        self.clauses.bucket = Some(Bucket { boundaries });
    }

    pub(super) fn pad(&mut self, column: String, to: Option<u64>) {
        let to = to.map(|to| self.size("pad_to", "elements", to));
        if self.batch_mut("pad").is_none() {
            return;
        }
        if self.clauses.pad.iter().any(|pad| pad.column == column) {
            self.fail(format!("\"{column}\" is padded twice"));
        }
        let with = None;
        self.clauses.pad.push(Pad { column, to, with });
    }

    pub(super) fn pad_with(&mut self, value: String) {
        if value.parse().is_ok_and(f64::is_finite) {
            match self.clauses.pad.last_mut() {
                Some(pad) => pad.with = Some(value),
                None => self.fail("pad_with must come after pad or pad_to".to_owned()),
            }
        } else {
            self.fail(format!("pad_with expects a number, found {value}"));
        }
    }

    pub(super) fn horizon(&mut self, windows: u64) {
        self.clauses.options.horizon = self.size("horizon", "windows", windows);
    }

    fn batch_mut(&mut self, call: &str) -> Option<&mut BatchClause> {
        if self.clauses.batch.is_none() {
            self.fail(format!("{call} must come after batch"));
        }
        self.clauses.batch.as_mut()
    }

    fn remainder(&mut self, call: &str, remainder: Remainder) {
        let Some(batch) = self.batch_mut(call) else {
            return;
        };
        if remainder == Remainder::Pad && matches!(batch.size, BatchSize::Tokens(_)) {
            self.fail(format!(
                "{call} needs batch(rows), but batch_by_tokens was called"
            ));
        } else if batch.remainder == Remainder::Keep || batch.remainder == remainder {
            batch.remainder = remainder;
        } else {
            self.fail("drop_remainder and pad_remainder exclude each other".to_owned());
        }
    }

    pub(super) fn drop_remainder(&mut self) {
        self.remainder("drop_remainder", Remainder::Drop);
    }

    pub(super) fn pad_remainder(&mut self) {
        self.remainder("pad_remainder", Remainder::Pad);
    }

    pub(super) fn global(&mut self) {
        if let Some(batch) = self.batch_mut("global") {
            batch.scope = BatchScope::Global;
        }
    }

    pub(super) fn repeat(&mut self, epochs: Option<u64>) {
        let stage = if self.clauses.batch.is_some() {
            BuilderStage::Repeat
        } else {
            BuilderStage::Continuous
        };
        if self.stage >= BuilderStage::Continuous && self.clauses.repeat != Repeat::default() {
            self.fail("repeat is called twice".to_owned());
            return;
        }
        self.enter(stage);
        let epochs = epochs.map(|epochs| self.size("repeat", "epochs", epochs));
        self.clauses.repeat = Repeat {
            epochs,
            continuous: false,
        };
    }
}
