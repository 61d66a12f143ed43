//! Methods of the pipeline builder.

use datafusion::logical_expr::Expr;

use super::input::{PipelineBuilder, PipelineInput};
use super::relation::RelationStep;
use super::stages::{Stages, WindowSize};
use crate::clauses::{EqualSteps, ErrorBudget, OnError, Optimize, Relax};
use crate::pipeline::Pipeline;

impl Pipeline {
    /// Starts a pipeline over a source, a registered table or pipeline, or a [`mix`](super::mix())
    /// of these.
    pub fn from(input: impl Into<PipelineInput>) -> PipelineBuilder {
        PipelineBuilder {
            input: input.into(),
            steps: Vec::new(),
            stages: Stages::default(),
            bucket_by: None,
            bucketed: None,
        }
    }

    /// Continues this pipeline: further calls come after the pipeline's query and clauses.
    pub fn then(self) -> PipelineBuilder {
        PipelineBuilder {
            input: PipelineInput::Planned(Box::new(self.plan)),
            steps: Vec::new(),
            stages: Stages::after(self.clauses),
            bucket_by: None,
            bucketed: self.bucketed,
        }
    }
}

impl PipelineBuilder {
    /// Keeps the rows for which `predicate` is true: `WHERE`.
    pub fn filter(mut self, predicate: Expr) -> Self {
        self.stages.relational("filter");
        self.steps.push(RelationStep::Filter(predicate));
        self
    }

    /// Computes the column `name`: replaces the column of that name at the same index, or else
    /// appends a new column.
    pub fn with_column(mut self, name: impl Into<String>, value: Expr) -> Self {
        self.stages.row_wise("with_column");
        self.steps
            .push(RelationStep::WithColumn(name.into(), value));
        self
    }

    /// Keeps only `columns`, in their order: `SELECT`.
    pub fn select(mut self, columns: impl IntoIterator<Item = Expr>) -> Self {
        self.stages.row_wise("select");
        self.steps
            .push(RelationStep::Select(columns.into_iter().collect()));
        self
    }

    /// Shuffles the rows of each epoch: `SHUFFLE .. SEED seed`.
    pub fn shuffle(mut self, window: WindowSize, seed: u64) -> Self {
        self.stages.shuffle(window, seed);
        self
    }

    /// Shuffles the rows of each epoch with the seed that [`seed`](Self::seed) sets, or else 0:
    /// `SHUFFLE ..` without `SEED`.
    pub fn shuffle_unseeded(mut self, window: WindowSize) -> Self {
        self.stages.window(window);
        self
    }

    /// Sets the pipeline's seed, if [`shuffle`](Self::shuffle) does not: `SEED seed`.
    pub fn seed(mut self, seed: u64) -> Self {
        self.stages.seed(seed);
        self
    }

    /// Drops the first rows of each epoch: `SKIP rows`.
    pub fn skip(mut self, rows: u64) -> Self {
        self.stages.skip(rows);
        self
    }

    /// Keeps the first rows of each epoch: `TAKE rows`.
    pub fn take(mut self, rows: u64) -> Self {
        self.stages.take(rows);
        self
    }

    /// Concatenates the lists of `column` into packs of `elements` elements: `PACK column INTO
    /// elements`. Each row of a batch is then a pack, with the new columns `<column>_segment_ids`
    /// and `<column>_positions`.
    pub fn pack(mut self, column: impl Into<String>, elements: u64) -> Self {
        self.stages.pack(column.into(), elements);
        self
    }

    /// Fills each batch with rows of one bucket: `BUCKET BY value BOUNDARIES (..)`. A value belongs
    /// to the first bucket whose boundary is greater than the value, or else to the last bucket.
    pub fn bucket_by(mut self, value: Expr, boundaries: impl IntoIterator<Item = u64>) -> Self {
        self.stages.bucket(boundaries.into_iter().collect());
        self.bucket_by = Some(value);
        self
    }

    /// Fills each batch with rows whose lists in `column` have at most `tokens` elements in total:
    /// `BATCH BY TOKENS tokens ON column`.
    pub fn batch_by_tokens(mut self, tokens: u64, column: impl Into<String>) -> Self {
        self.stages.batch_by_tokens(tokens, column.into());
        self
    }

    /// Pads the lists of `column` with 0 to the length of the longest list in the batch: `PAD
    /// column`. The new column `<column>_length` holds the lengths before padding.
    pub fn pad(mut self, column: impl Into<String>) -> Self {
        self.stages.pad(column.into(), None);
        self
    }

    /// Pads the lists of `column` with 0 to `elements` elements: `PAD column TO elements`.
    pub fn pad_to(mut self, column: impl Into<String>, elements: u64) -> Self {
        self.stages.pad(column.into(), Some(elements));
        self
    }

    /// Sets the padding value of the preceding [`pad`](Self::pad) or [`pad_to`](Self::pad_to):
    /// `WITH value`. `value` must be a number of the element type.
    pub fn pad_with(mut self, value: impl ToString) -> Self {
        self.stages.pad_with(value.to_string());
        self
    }

    /// Groups rows into batches: `BATCH rows`.
    pub fn batch(mut self, rows: u64) -> Self {
        self.stages.batch(rows);
        self
    }

    /// Drops the last rows if they do not fill a batch: `DROP REMAINDER`.
    pub fn drop_remainder(mut self) -> Self {
        self.stages.drop_remainder();
        self
    }

    /// Fills the last batch by repeating the rows of that batch: `PAD REMAINDER`.
    pub fn pad_remainder(mut self) -> Self {
        self.stages.pad_remainder();
        self
    }

    /// Splits each batch among the ranks, instead of giving whole batches to the ranks in turn:
    /// `GLOBAL`.
    pub fn global(mut self) -> Self {
        self.stages.global();
        self
    }

    /// Runs several epochs: `REPEAT epochs`. If called before [`batch`](Self::batch), batches may
    /// cross the ends of epochs: `REPEAT epochs CONTINUOUS`.
    pub fn repeat(mut self, epochs: u64) -> Self {
        self.stages.repeat(Some(epochs));
        self
    }

    /// Runs epochs forever: `REPEAT`. If called before [`batch`](Self::batch), batches may cross
    /// the ends of epochs.
    pub fn repeat_forever(mut self) -> Self {
        self.stages.repeat(None);
        self
    }

    /// Sets the policy for failed rows: `OPTIONS (on_error = ..)`.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.stages.clauses.options.on_error = policy;
        self
    }

    /// Sets the changes of the stream that rewrites may make: `OPTIONS (relax = ..)`.
    pub fn relax(mut self, tier: Relax) -> Self {
        self.stages.clauses.options.relax = tier;
        self
    }

    /// Turns the optimiser on or off: `OPTIONS (optimize = ..)`.
    pub fn optimize(mut self, optimize: Optimize) -> Self {
        self.stages.clauses.options.optimize = optimize;
        self
    }

    /// Sets the number of shuffle windows for which unfinished packs and buckets may hold rows:
    /// `OPTIONS (horizon = ..)`.
    pub fn horizon(mut self, windows: u64) -> Self {
        self.stages.horizon(windows);
        self
    }

    /// Sets the handling of the last step if the number of batches is not a multiple of the number
    /// of ranks: `OPTIONS (equal_steps = ..)`.
    pub fn equal_steps(mut self, policy: EqualSteps) -> Self {
        self.stages.clauses.options.equal_steps = policy;
        self
    }

    /// Sets the number of rows that may fail before the run stops: `OPTIONS (error_budget = ..)`.
    pub fn error_budget(mut self, budget: ErrorBudget) -> Self {
        self.stages.clauses.options.error_budget = Some(budget);
        self
    }

    /// Sets the folder of the dead-letter table, which records failed rows: `OPTIONS (dead_letters
    /// = ..)`.
    pub fn dead_letters(mut self, path: impl Into<String>) -> Self {
        self.stages.clauses.options.dead_letters = Some(path.into());
        self
    }
}
