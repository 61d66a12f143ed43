//! The output of EXPLAIN: the written plan, the chosen plan and the reasons for the choice, the
//! order of the rows, the number of steps, and (for EXPLAIN ANALYZE) the measured times.

mod analysis;
mod optimizer;
mod why_not;

use std::fmt;
use std::time::Duration;

use arrow::datatypes::Field;
use forebay_planner::clauses::{BatchScope, BatchSize, Optimize, Remainder, ShuffleWindow};
use forebay_planner::compile::Compiled;
use forebay_planner::error::PlanError;
use forebay_planner::optimizer::explain::Explained;
use forebay_planner::optimizer::explain::picture::{dot, svg};
use forebay_planner::optimizer::explain::why_not::named;
use forebay_planner::units::bytes_text;
use forebay_runtime::run::JobRun;
use forebay_udfs::TensorType;
use serde_json::{Value, json};

use self::analysis::Analysis;
pub use self::why_not::WhyNotAnswer;
use crate::error::{Result, planning};

/// The answer to EXPLAIN for a pipeline.
#[derive(Debug, Clone)]
pub struct Explanation {
    name: String,
    written: String,
    chosen: String,
    /// Columns that the client of a cluster computes.
    last_steps: Vec<String>,
    /// Report of the optimiser; `None` if the optimiser is off.
    optimizer: Option<Explained>,
    planning: Duration,
    verbose: bool,
    fragment: String,
    columns: Vec<(String, String)>,
    tail: String,
    order: String,
    windows: WindowSummary,
    snapshot: SnapshotSummary,
    segment_rows: u64,
    in_flight: usize,
    /// True if later epochs decode with the seek indexes of earlier ones.
    seek_indexes: bool,
    seed: u64,
    epochs: Option<u64>,
    continuous: bool,
    world: u64,
    epoch_rows: Option<u64>,
    steps_per_span: Option<u64>,
    /// Number of steps of the first epoch, if the number may differ between epochs.
    first_steps: Option<u64>,
    idle_ranks: u64,
    options: String,
    semantic_hash: String,
    plan_hash: String,
    analysis: Option<Analysis>,
}

#[derive(Debug, Clone)]
struct WindowSummary {
    count: usize,
    smallest: u64,
    largest: u64,
}

#[derive(Debug, Clone)]
struct SnapshotSummary {
    rows: u64,
    bytes: u64,
    splits: usize,
    hash: String,
}

impl Explanation {
    pub(crate) async fn of(
        name: &str,
        compiled: &Compiled,
        planned_in: Duration,
        opened: JobRun,
        analyze: bool,
    ) -> Result<Self> {
        let windows = opened.window_rows(opened.first_epoch);
        let sizes = || windows.iter().copied();
        let job = &opened.job;
        let clauses = &compiled.clauses;
        let (segment_rows, in_flight) = (opened.segment_rows, opened.in_flight);
        let steps_per_span = opened.steps_per_span();
        let first_steps = match steps_per_span {
            Some(_) => None,
            None => opened.steps_of_first_epoch().await,
        };
        let idle_ranks = opened
            .batches_per_span()
            .map_or(0, |batches| opened.ranks().idle(batches));
        let mut explanation = Self {
            name: name.to_owned(),
            written: compiled.written.to_string(),
            chosen: compiled.chosen.to_string(),
            last_steps: opened.last_steps().to_vec(),
            optimizer: compiled.explain().map_err(planning)?,
            planning: planned_in,
            verbose: false,
            fragment: job.explain(),
            columns: opened
                .schema()?
                .fields()
                .iter()
                .map(|f| (f.name().clone(), type_text(f)))
                .collect(),
            tail: tail_text(&opened),
            order: shuffle_text(clauses.shuffle),
            windows: WindowSummary {
                count: windows.len(),
                smallest: sizes().min().unwrap_or(0),
                largest: sizes().max().unwrap_or(0),
            },
            snapshot: SnapshotSummary {
                rows: job.rows(),
                bytes: job.bytes(),
                splits: job.splits(),
                hash: job.name.snapshot_hash.clone(),
            },
            segment_rows,
            in_flight,
            seek_indexes: opened.epochs != Some(1) && compiled.uses_seek_indexes(),
            seed: job.seed,
            epochs: opened.epochs,
            continuous: clauses.repeat.continuous,
            world: opened.ranks().world,
            epoch_rows: opened.epoch_rows,
            steps_per_span,
            first_steps,
            idle_ranks,
            options: options_text(compiled),
            semantic_hash: compiled.semantic_hash.to_string(),
            plan_hash: compiled.plan_hash().map_err(planning)?,
            analysis: None,
        };
        if analyze {
            explanation.analysis = Some(Analysis::of(opened).await?);
        }
        Ok(explanation)
    }

    /// Makes the text include all details about the optimiser, as `EXPLAIN VERBOSE` does.
    #[must_use]
    pub fn verbose(self) -> Self {
        Self {
            verbose: true,
            ..self
        }
    }

    /// Returns the answer to `EXPLAIN WHY NOT rule`: the reasons why a rewrite rule, or each rule
    /// of a family, did not apply.
    ///
    /// # Errors
    /// Fails if no rule and no family is named `rule`.
    pub fn why_not(&self, rule: &str) -> Result<WhyNotAnswer> {
        named(rule)?;
        let rules = self.optimizer.as_ref().map(|found| found.why_not(rule));
        Ok(WhyNotAnswer {
            rules: rules.transpose()?,
        })
    }

    /// Returns the written and the chosen plan side by side, in Graphviz's DOT language.
    ///
    /// # Errors
    /// Fails if the optimiser is off, since there is only one plan.
    pub fn to_dot(&self) -> Result<String> {
        Ok(dot(&self.optimizer()?.panels()))
    }

    /// Returns the written and the chosen plan side by side, as an SVG document.
    ///
    /// # Errors
    /// Fails if the optimiser is off, since there is only one plan.
    pub fn to_svg(&self) -> Result<String> {
        Ok(svg(&self.optimizer()?.panels()))
    }

    fn optimizer(&self) -> Result<&Explained> {
        let found = self.optimizer.as_ref();
        Ok(found.ok_or_else(|| {
            PlanError::mistake(
                "the optimiser is off, so there is only the written plan, without costs",
            )
            .with_hint("leave out OPTIONS (optimize = 'off')")
        })?)
    }

    /// Returns the explanation as one JSON object.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "pipeline": self.name,
            "semantic_hash": self.semantic_hash,
            "plan_hash": self.plan_hash,
            "snapshot": {
                "hash": self.snapshot.hash, "rows": self.snapshot.rows,
                "bytes": self.snapshot.bytes, "splits": self.snapshot.splits,
            },
            "seed": self.seed,
            "epochs": self.epochs,
            "written": self.written.trim_end().lines().collect::<Vec<_>>(),
            "chosen": self.chosen.trim_end().lines().collect::<Vec<_>>(),
            "computed_by_the_client": self.last_steps,
            "optimizer": self.optimizer.as_ref().map(|found| optimizer::json(found, self.planning)),
            "physical": self.fragment.trim_end().lines().collect::<Vec<_>>(),
            "tail": self.tail,
            "columns": self.columns.iter()
                .map(|(name, kind)| json!({"name": name, "type": kind})).collect::<Vec<_>>(),
            "order": self.order,
            "windows": {
                "count": self.windows.count, "smallest_rows": self.windows.smallest,
                "largest_rows": self.windows.largest,
            },
            "segment_rows": self.segment_rows,
            "segments_in_flight": self.in_flight,
            "seek_indexes": self.seek_indexes,
            "world": self.world,
            "epoch_rows": self.epoch_rows,
            "continuous": self.continuous,
            "steps_per_rank": self.steps_per_span,
            "steps_per_rank_in_the_first_epoch": self.steps_per_span.or(self.first_steps),
            "ranks_without_rows_in_the_last_step": self.idle_ranks,
        });
        if let Some(analysis) = &self.analysis {
            value["analyze"] = analysis.to_json();
            value["analyze"]["predicted_seconds"] = json!(self.predicted());
        }
        value
    }

    /// Writes the written plan, the chosen plan and the reasons for the choice.
    fn plans(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = |text: &str, f: &mut fmt::Formatter<'_>| {
            let mut lines = text.lines();
            lines.try_for_each(|line| writeln!(f, "  {line}"))
        };
        let last_steps = |f: &mut fmt::Formatter<'_>| {
            let mut steps = self.last_steps.iter();
            steps.try_for_each(|step| writeln!(f, "  the client computes {step}; workers the rest"))
        };
        let Some(found) = &self.optimizer else {
            writeln!(f, "Written plan")?;
            lines(&self.written, f)?;
            return last_steps(f);
        };
        let report = &found.report;
        let written = optimizer::heading("Written plan", report.written, found);
        writeln!(f, "{written}")?;
        lines(&self.written, f)?;
        let chosen = optimizer::heading("Chosen plan", report.chosen, found);
        writeln!(f, "{chosen}")?;
        lines(&self.chosen, f)?;
        last_steps(f)?;
        optimizer::short(found, f)?;
        if self.verbose {
            return optimizer::long(found, self.planning, f);
        }
        writeln!(
            f,
            "  EXPLAIN VERBOSE tells each step, what was refused, and every place for a cache"
        )
    }

    /// Predicts the CPU time, in seconds, of the part of an epoch that was run. If a cache makes
    /// the costs of epochs differ, the prediction is for an epoch of mean cost.
    fn predicted(&self) -> Option<f64> {
        let found = self.optimizer.as_ref()?;
        let all = found.report.chosen as f64 / 1e12;
        let share = self.analysis.as_ref()?.share;
        Some(share * all / found.epochs.max(1) as f64)
    }

    fn steps_text(&self) -> String {
        let span = if self.continuous { "run" } else { "epoch" };
        let ranks = match self.world {
            1 => String::new(),
            world => format!(" for each of {world} ranks, proven equal"),
        };
        let Some(steps) = self.steps_per_span else {
            return match (self.first_steps, self.continuous) {
                (Some(steps), true) => format!("{steps} per run{ranks}"),
                (Some(steps), false) => {
                    format!("{steps} in the first epoch{ranks}; in others it may differ")
                }
                (None, _) if self.world > 1 => format!(
                    "counted in each epoch, equal for each of {} ranks",
                    self.world
                ),
                (None, _) => {
                    "not known in advance, since they depend on values that are computed during the run"
                        .to_owned()
                }
            };
        };
        let steps = if steps > u64::MAX / 4 {
            "without end".to_owned()
        } else {
            steps.to_string()
        };
        let mut text = format!("{steps} per {span}{ranks}");
        if let Some(rows) = self.epoch_rows {
            text += &format!("; {rows} rows per epoch");
        }
        if self.idle_ranks > 0 {
            text += &format!(
                "; in the last step {} of them have no rows (BATCH n GLOBAL splits every batch)",
                self.idle_ranks
            );
        }
        text
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Pipeline {}", self.name)?;
        writeln!(f, "  semantic hash  {}", self.semantic_hash)?;
        writeln!(f, "  plan hash      {}", self.plan_hash)?;
        let SnapshotSummary {
            rows,
            bytes,
            splits,
            hash,
        } = &self.snapshot;
        writeln!(f, "  snapshot       {hash}")?;
        writeln!(
            f,
            "                 {rows} rows in {splits} splits, {}",
            bytes_text((*bytes).into())
        )?;
        writeln!(f, "  seed           {}", self.seed)?;
        writeln!(f, "  options        {}", self.options)?;
        self.plans(f)?;
        writeln!(f, "Physical plan")?;
        writeln!(f, "  tail: {}", self.tail)?;
        writeln!(f, "  fragment:")?;
        self.fragment
            .lines()
            .try_for_each(|line| writeln!(f, "    {line}"))?;
        if self.seek_indexes {
            writeln!(
                f,
                "  index: the first epoch keeps seek indexes of JPEG files, and later ones jump to their regions"
            )?;
        }
        writeln!(f, "Columns")?;
        for (name, kind) in &self.columns {
            writeln!(f, "  {name}: {kind}")?;
        }
        let WindowSummary {
            count,
            smallest,
            largest,
        } = self.windows;
        writeln!(f, "Order")?;
        writeln!(
            f,
            "  {}: {count} windows an epoch, {smallest} to {largest} rows",
            self.order
        )?;
        writeln!(
            f,
            "  segments of {} rows, {} side by side",
            self.segment_rows, self.in_flight
        )?;
        writeln!(f, "Steps")?;
        writeln!(f, "  {}", self.steps_text())?;
        match self.epochs {
            Some(epochs) => writeln!(f, "  {epochs} epochs")?,
            None => writeln!(f, "  epochs without end")?,
        }
        match &self.analysis {
            Some(analysis) => {
                write!(f, "{analysis}")?;
                match self.predicted() {
                    Some(predicted) => {
                        let measured = analysis.cpu.as_secs_f64();
                        writeln!(
                            f,
                            "Predicted {predicted:.2} s of CPU time; measured {measured:.2} s over all threads. Predicted / measured: {:.2}.",
                            predicted / measured.max(1e-9)
                        )
                    }
                    None => Ok(()),
                }
            }
            None => Ok(()),
        }
    }
}

/// Describes the shuffle of a pipeline.
fn shuffle_text(shuffle: Option<ShuffleWindow>) -> String {
    match shuffle {
        None => "stored order".to_owned(),
        Some(ShuffleWindow::Rows(rows)) => {
            format!("shuffled within windows of at least {rows} rows")
        }
        Some(ShuffleWindow::Global) => "shuffled globally".to_owned(),
    }
}

fn tail_text(opened: &JobRun) -> String {
    let (deal, clauses) = (opened.ranks(), &opened.job.clauses);
    let scope = match deal.batch.scope {
        BatchScope::PerRank => "per rank",
        BatchScope::Global => "over all ranks",
    };
    let remainder = match deal.batch.remainder {
        Remainder::Keep => "last batch short",
        Remainder::Drop => "remainder dropped",
        Remainder::Pad => "remainder padded",
    };
    let mut text = String::new();
    if clauses.skip > 0 {
        text += &format!("skip {}, ", clauses.skip);
    }
    if let Some(take) = clauses.take {
        text += &format!("take {take}, ");
    }
    if let Some(pack) = &clauses.pack {
        text += &format!("pack {} into {}, ", pack.column, pack.into);
    }
    if let Some(bucket) = &clauses.bucket {
        text += &format!("bucket by {} boundaries, ", bucket.boundaries.len());
    }
    text += &match (deal.batch.size, &clauses.tokens_of) {
        (BatchSize::Rows(rows), _) => format!("batch {rows} {scope}, {remainder}"),
        (BatchSize::Tokens(tokens), column) => {
            let column = column.as_deref().unwrap_or_default();
            format!("batch by {tokens} tokens of {column} {scope}, {remainder}")
        }
    };
    for pad in &clauses.pad {
        text += &format!(", pad {}", pad.column);
        text += &pad.to.map(|to| format!(" to {to}")).unwrap_or_default();
    }
    text + &format!("; rank {} of {}", deal.rank, deal.world)
}

fn options_text(compiled: &Compiled) -> String {
    let options = &compiled.clauses.options;
    let on_error = format!("{:?}", options.on_error).to_lowercase();
    let relax = options.relax.option();
    let optimize = match options.optimize {
        Optimize::Off => "off",
        Optimize::Default => "default",
    };
    format!("on_error {on_error}, relax {relax}, optimize {optimize}")
}

/// Returns a column's type for display. The text of a tensor type has its element type, shape and
/// layout.
pub(crate) fn type_text(field: &Field) -> String {
    match TensorType::from_field(field) {
        Ok(Some(tensor)) => tensor.to_string(),
        _ => field.data_type().to_string(),
    }
}
