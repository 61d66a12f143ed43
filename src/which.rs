//! Provenance of a batch: the rows, files, random draws and plan from which the batch was computed,
//! and the batch itself, computed again.

use std::collections::BTreeMap;
use std::fmt;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use forebay_planner::clauses::BatchScope;
use forebay_planner::rows::RowPlan;
use forebay_runtime::error::Error as RunError;
use forebay_runtime::run::{RunConfig, RunScope};
use forebay_runtime::stream::digest::Digest;
use forebay_runtime::stream::token::{StreamName, Token};
use serde_json::{Value, json};

use crate::compile::compiled;
use crate::error::{Result, engine, planning};
use crate::session::Session;

/// The identity of a batch in a run.
#[derive(Debug, Clone)]
pub enum BatchName {
    /// The last batch that this rank received before the position that the token names.
    Before(Box<Token>),
    /// The batch that this rank receives at a step of an epoch. Steps are counted from the start of
    /// the epoch; under `CONTINUOUS`, from the start of the stream.
    Step {
        /// Number of the epoch, from 0.
        epoch: u64,
        /// Number of the step, from 0.
        step: u64,
    },
}

/// The origin of a row of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowOrigin {
    /// Path of the file, relative to its source.
    pub file: String,
    /// Number of the row in the file, from 0.
    pub row: u64,
    /// Index, from 0, among the rows that `unnest` produced from the stored row; 0 without
    /// `unnest`.
    pub child: u32,
    /// Hash of the row's key. The row's random draws are derived from this hash.
    pub key: u64,
    /// Key of the row's pass (one traversal of the data in one epoch): a hash of the seed, the
    /// epoch, and the number of the pass within the epoch.
    pub pass: u64,
}

/// The provenance of a batch, and the batch itself.
#[derive(Debug, Clone)]
pub struct Provenance {
    /// Name of the stream that the batch belongs to.
    pub stream: StreamName,
    /// Hash of the plan by which [`Session::which`] computed the batch again.
    pub plan_hash: String,
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Number of the batch, over all ranks, in its epoch (under `CONTINUOUS`, in the run).
    pub batch_number: u64,
    /// Names of the random functions, by their stream ids. A draw is Philox 4x32-10 with a key
    /// derived from the row's `pass` and the stream id, and a counter derived from the row's `key`
    /// and `child`.
    pub draws: BTreeMap<u64, String>,
    /// Origins of the batch's rows, in the order of the batch. For packed rows, these are the
    /// origins of all rows in the packs.
    pub rows: Vec<RowOrigin>,
    /// The batch, computed again.
    pub batch: RecordBatch,
    /// BLAKE3 digest of the batch's values.
    pub digest: String,
}

impl Session {
    /// Computes a batch of a registered pipeline again, with its provenance. No other batch is
    /// computed. If filters, packs or buckets decide which rows a batch has, the columns that these
    /// clauses use are read for all rows.
    ///
    /// # Errors
    /// Fails if there is no such pipeline or batch, or if the token belongs to another stream.
    pub async fn which(
        &self,
        pipeline: &str,
        mut config: RunConfig,
        name: BatchName,
    ) -> Result<Provenance> {
        let planned = self.pipeline(pipeline).await?;
        let (world, rank) = (config.world.max(1), config.rank);
        let scope = planned.clauses.batch.unwrap_or_default().scope;
        let none = |why: &str| RunError::Config(format!("no such batch: {why}"));
        // Batches are numbered over all ranks, and each rank has one batch per step: rank `r` has
        // batch number `step * world + r`.
        let (epoch, number) = match (&name, scope) {
            (BatchName::Before(token), BatchScope::PerRank) => {
                let cursor = &token.cursor;
                // In the last step of an epoch (under `CONTINUOUS`, of the run), there may be fewer
                // batches than ranks.
                let of_step = cursor.short.unwrap_or(world);
                if rank >= of_step {
                    let why = format!(
                        "rank {rank} of {world} has no batch before the token: the last step before the token had only {of_step} batches"
                    );
                    return Err(none(&why).into());
                }
                let first = cursor.batches.checked_sub(of_step);
                (cursor.epoch, first.map(|first| first + rank))
            }
            (BatchName::Before(token), BatchScope::Global) => {
                (token.cursor.epoch, token.cursor.batches.checked_sub(1))
            }
            (BatchName::Step { epoch, step }, BatchScope::PerRank) => (
                *epoch,
                step.checked_mul(world).and_then(|n| n.checked_add(rank)),
            ),
            (BatchName::Step { epoch, step }, BatchScope::Global) => (*epoch, Some(*step)),
        };
        let step = number.ok_or_else(|| none("no batch was received before the token"))?;
        if scope == BatchScope::PerRank {
            (config.world, config.rank) = (1, 0);
        }
        if let BatchName::Before(token) = &name {
            config.seed = config.seed.or(Some(token.stream.seed));
        }
        config.first_epoch = if planned.clauses.repeat.continuous {
            0
        } else {
            epoch
        };
        config.epochs = Some(epoch.saturating_add(1) - config.first_epoch);
        config.internals.scope = RunScope::Step { epoch, step };
        let compiled = compiled(&planned, &config, self.prices(), self.opener()).await?;
        let opened = self.opener().open(&compiled, &config).await?;
        if let BatchName::Before(token) = &name {
            token.check(&opened.job.name)?;
        }
        let stream = opened.job.name.as_ref().clone();
        let mut run = opened.start();
        let Some(batch) = run.next().await else {
            return Err(none(
                "the epoch ends before this step, or this rank has no batch in this step",
            )
            .into());
        };
        let batch = batch?;
        let mut digest = Digest::default();
        digest.update(&batch.batch).map_err(engine)?;
        let rows = batch
            .keys()
            .zip(batch.rows.hash.values())
            .zip(batch.rows.pass.values());
        let rows = rows.map(|(((file, row, child), key), pass)| RowOrigin {
            file: file.to_owned(),
            row,
            child,
            key: *key,
            pass: *pass,
        });
        Ok(Provenance {
            stream,
            plan_hash: compiled.plan_hash().map_err(planning)?,
            epoch: batch.epoch,
            batch_number: step,
            draws: draws(&compiled.written),
            rows: rows.collect(),
            batch: batch.batch.clone(),
            digest: digest.finish(),
        })
    }
}

/// Returns the names of the random functions that `plan` calls, by their stream ids.
fn draws(plan: &RowPlan) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    plan.visit(&mut |node| {
        for expr in node.op.exprs() {
            let visited = expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr
                    && forebay_udfs::is_random(call.name())
                {
                    let streams = call.args.iter().filter_map(|arg| match arg {
                        Expr::Literal(ScalarValue::UInt64(Some(stream)), _) => Some(*stream),
                        _ => None,
                    });
                    found.extend(streams.map(|stream| (stream, call.name().to_owned())));
                }
                Ok(TreeNodeRecursion::Continue)
            });
            // The visitor never fails, so the result is ignored.
            let _ = visited;
        }
    });
    found
}

impl Provenance {
    /// Formats the provenance as a JSON object, without the batch's values.
    pub fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "file": row.file, "row": row.row, "child": row.child,
                "key": format!("{:016x}", row.key), "pass": format!("{:016x}", row.pass),
            })
        });
        json!({
            "stream": self.stream,
            "plan_hash": self.plan_hash,
            "epoch": self.epoch,
            "batch": self.batch_number,
            "draws": self.draws.iter()
                .map(|(stream, function)| json!({"stream": stream, "function": function}))
                .collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(),
            "digest": self.digest,
        })
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "batch     {} of epoch {}, over all ranks",
            self.batch_number, self.epoch
        )?;
        writeln!(f, "stream    {}", self.stream.semantic_hash)?;
        writeln!(
            f,
            "data      {} ({})",
            self.stream.snapshot_hash, self.stream.data
        )?;
        writeln!(f, "plan      {}", self.plan_hash)?;
        writeln!(f, "seed      {}", self.stream.seed)?;
        if !self.draws.is_empty() {
            let draws = self.draws.iter();
            let draws: Vec<String> = draws.map(|(stream, f)| format!("{f} #{stream}")).collect();
            writeln!(f, "draws     {}", draws.join(", "))?;
        }
        writeln!(f, "digest    {}", self.digest)?;
        writeln!(f, "rows      {}", self.rows.len())?;
        for row in &self.rows {
            write!(f, "  {} row {}", row.file, row.row)?;
            if row.child > 0 {
                write!(f, " child {}", row.child)?;
            }
            writeln!(f, "  key {:016x}  pass {:016x}", row.key, row.pass)?;
        }
        Ok(())
    }
}
