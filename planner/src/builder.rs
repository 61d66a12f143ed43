//! The Rust front end: a pipeline by method calls.
//!
//! ```no_run
//! # use forebay_planner::builder::{Window, call, col, images, lit};
//! # use forebay_planner::{catalog::Catalog, error::PlanError, pipeline::Pipeline};
//! # async fn example(catalog: &Catalog) -> Result<(), PlanError> {
//! let pipeline = Pipeline::from(images("photos/train")?)
//!     .filter(col("label").gt(lit(2)))
//!     .with_column("pixels", call("decode_image", [col("image")]))
//!     .with_column("pixels", call("resize", [col("pixels"), lit(224), lit(224)]))
//!     .select([col("label"), col("pixels")])
//!     .shuffle(Window::rows(10_000), 42)
//!     .batch(256)
//!     .drop_remainder()
//!     .repeat(90)
//!     .build(catalog)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! Calls make the plan and the clauses of the SQL that means the same.

mod expr;
mod mix;
mod relation;
mod source;
mod stages;
mod text;

pub use datafusion::prelude::{cast, lit};
pub use expr::{Pin, call, col, list, stream};
pub use mix::{MixBuilder, MixStop, mix};
pub use source::{Input, SourceBuilder, arrow, avro, csv, images, json, parquet, table};
pub use stages::Window;
pub use text::sql;

use arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, LogicalPlan};

use self::relation::{Relation, Step};
use self::stages::Stages;
use crate::catalog::Catalog;
use crate::clauses::{EqualSteps, ErrorBudget, OnError, Optimize, Relax};
use crate::error::Result;
use crate::groups::check_groups;
use crate::pipeline::{BUCKET_COLUMN, Pipeline};
use crate::sql::{ClausePositions, check_batch};

/// A pipeline being built. Mistakes in the order of calls surface in [`build`](Self::build).
#[derive(Debug, Clone)]
#[must_use = "nothing is planned before build"]
pub struct PipelineBuilder {
    input: Input,
    steps: Vec<Step>,
    stages: Stages,
    bucket_by: Option<Expr>,
    /// The plan with the buckets of a pipeline that goes on.
    bucketed: Option<LogicalPlan>,
}

impl Pipeline {
    /// Begins a pipeline over a source, a registered table, a registered pipeline, or a [`mix`](mix()) of
    /// such.
    pub fn from(input: impl Into<Input>) -> PipelineBuilder {
        PipelineBuilder {
            input: input.into(),
            steps: Vec::new(),
            stages: Stages::default(),
            bucket_by: None,
            bucketed: None,
        }
    }

    /// Goes on where this pipeline ends: calls follow its query and its clauses.
    pub fn then(self) -> PipelineBuilder {
        PipelineBuilder {
            input: Input::Planned(Box::new(self.plan)),
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
        self.steps.push(Step::Filter(predicate));
        self
    }

    /// Replaces a column in its place, or appends a new one.
    pub fn with_column(mut self, name: impl Into<String>, value: Expr) -> Self {
        self.stages.row_wise("with_column");
        self.steps.push(Step::WithColumn(name.into(), value));
        self
    }

    /// Keeps these columns, in this order: `SELECT`.
    pub fn select(mut self, columns: impl IntoIterator<Item = Expr>) -> Self {
        self.stages.row_wise("select");
        self.steps.push(Step::Select(columns.into_iter().collect()));
        self
    }

    /// Orders the rows of each epoch at random: `SHUFFLE .. SEED seed`.
    pub fn shuffle(mut self, window: Window, seed: u64) -> Self {
        self.stages.shuffle(window, seed);
        self
    }

    /// Orders the rows of each epoch at random, by the pipeline's seed: `SHUFFLE ..` without a seed of its own.
    pub fn shuffle_unseeded(mut self, window: Window) -> Self {
        self.stages.window(window);
        self
    }

    /// Seeds the random functions of a pipeline that does not shuffle: `SEED seed`.
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

    /// Puts the sequences of a list column end to end into packs of `elements`: `PACK column INTO elements`. A batch
    /// then has packs as rows, with `<column>_segment_ids` and `<column>_positions`.
    pub fn pack(mut self, column: impl Into<String>, elements: u64) -> Self {
        self.stages.pack(column.into(), elements);
        self
    }

    /// Fills each batch with rows of one bucket: `BUCKET BY value BOUNDARIES (..)`. A value belongs to the first
    /// bucket whose boundary is above it.
    pub fn bucket_by(mut self, value: Expr, boundaries: impl IntoIterator<Item = u64>) -> Self {
        self.stages.bucket(boundaries.into_iter().collect());
        self.bucket_by = Some(value);
        self
    }

    /// Gathers rows as long as they have at most so many elements in a list column:
    /// `BATCH BY TOKENS tokens ON column`.
    pub fn batch_by_tokens(mut self, tokens: u64, column: impl Into<String>) -> Self {
        self.stages.batch_by_tokens(tokens, column.into());
        self
    }

    /// Makes the sequences of a list column in a batch as long as the longest, with 0: `PAD column`. The batch has
    /// their own lengths in `<column>_length`.
    pub fn pad(mut self, column: impl Into<String>) -> Self {
        self.stages.pad(column.into(), None);
        self
    }

    /// Makes the sequences of a list column `elements` long, with 0: `PAD column TO elements`.
    pub fn pad_to(mut self, column: impl Into<String>, elements: u64) -> Self {
        self.stages.pad(column.into(), Some(elements));
        self
    }

    /// What the [`pad`](Self::pad) or [`pad_to`](Self::pad_to) before it appends, instead of 0: `WITH value`. A
    /// number that the elements' type has.
    pub fn pad_with(mut self, value: impl ToString) -> Self {
        self.stages.pad_with(value.to_string());
        self
    }

    /// Gathers rows: `BATCH rows`.
    pub fn batch(mut self, rows: u64) -> Self {
        self.stages.batch(rows);
        self
    }

    /// Drops the rows that do not fill a batch: `DROP REMAINDER`.
    pub fn drop_remainder(mut self) -> Self {
        self.stages.drop_remainder();
        self
    }

    /// Fills the last batch by repeating its rows: `PAD REMAINDER`.
    pub fn pad_remainder(mut self) -> Self {
        self.stages.pad_remainder();
        self
    }

    /// Splits each batch over the ranks, rather than dealing whole batches to them: `GLOBAL`.
    pub fn global(mut self) -> Self {
        self.stages.global();
        self
    }

    /// Runs several epochs: `REPEAT epochs`. Before [`batch`](Self::batch), batches cross the ends
    /// of epochs: `REPEAT epochs CONTINUOUS`.
    pub fn repeat(mut self, epochs: u64) -> Self {
        self.stages.repeat(Some(epochs));
        self
    }

    /// Runs epochs without end: `REPEAT`. Before [`batch`](Self::batch), batches cross the ends of
    /// epochs.
    pub fn repeat_forever(mut self) -> Self {
        self.stages.repeat(None);
        self
    }

    /// Says what happens when a row fails: `OPTIONS (on_error = ..)`.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.stages.clauses.options.on_error = policy;
        self
    }

    /// Allows rewrites that are not exact: `OPTIONS (relax = ..)`.
    pub fn relax(mut self, tier: Relax) -> Self {
        self.stages.clauses.options.relax = tier;
        self
    }

    /// Switches the optimiser: `OPTIONS (optimize = ..)`.
    pub fn optimize(mut self, optimize: Optimize) -> Self {
        self.stages.clauses.options.optimize = optimize;
        self
    }

    /// Says after how many windows packs and buckets hold no rows open: `OPTIONS (horizon = ..)`.
    pub fn horizon(mut self, windows: u64) -> Self {
        self.stages.horizon(windows);
        self
    }

    /// Says what becomes of the last step where batches do not divide by ranks: `OPTIONS (equal_steps = ..)`.
    pub fn equal_steps(mut self, policy: EqualSteps) -> Self {
        self.stages.clauses.options.equal_steps = policy;
        self
    }

    /// Says how many rows may fail before the run stops: `OPTIONS (error_budget = ..)`.
    pub fn error_budget(mut self, budget: ErrorBudget) -> Self {
        self.stages.clauses.options.error_budget = Some(budget);
        self
    }

    /// Says where a table of the failed rows is written: `OPTIONS (dead_letters = ..)`.
    pub fn dead_letters(mut self, path: impl Into<String>) -> Self {
        self.stages.clauses.options.dead_letters = Some(path.into());
        self
    }

    /// Opens the source and plans.
    ///
    /// # Errors
    ///
    /// The first mistake in the order of calls, a size of 0, a source that cannot be opened,
    /// unknown columns or functions, wrong types, batches of varying shapes.
    pub async fn build(self, catalog: &Catalog) -> Result<Pipeline> {
        let clauses = self.stages.finish()?;
        let input = self.input.open(catalog).await?;
        let mut relation = Relation::new(catalog, input);
        for step in self.steps {
            relation.apply(step)?;
        }
        let plan = relation.finish()?;
        check_groups(plan.schema(), &clauses, &ClausePositions::default())?;
        if clauses.batch.is_some() {
            check_batch(plan.schema(), None)?;
        }
        let bucketed = match self.bucket_by {
            // No call that changes rows follows their buckets, so these are still those of the rows.
            None => self.bucketed,
            Some(by) => {
                let mut relation = Relation::new(catalog, plan.clone());
                let by = cast(by, DataType::Float64);
                relation.apply(Step::WithColumn(BUCKET_COLUMN.to_owned(), by))?;
                Some(relation.finish()?)
            }
        };
        Ok(Pipeline {
            name: None,
            plan,
            bucketed,
            clauses,
            text: None,
        })
    }
}

#[cfg(test)]
mod tests;
