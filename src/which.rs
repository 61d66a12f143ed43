//! Provenance: which rows, files, draws and plan made a batch; and the batch again.

use std::collections::BTreeMap;
use std::fmt;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use forebay_planner::clauses::BatchScope;
use forebay_planner::rows::RowPlan;
use forebay_runtime::digest::Digest;
use forebay_runtime::engine::{Only, Opened, RunConfig};
use forebay_runtime::error::Error as RunError;
use forebay_runtime::token::{StreamName, Token};
use serde_json::{Value, json};

use crate::compile::compiled;
use crate::error::{Result, engine, planning};
use crate::session::Session;

/// Names a batch of a run.
#[derive(Debug, Clone)]
pub enum BatchName {
    /// The one of this rank that was received last before a token was taken.
    Before(Box<Token>),
    /// The one of this rank at a step of an epoch (of the whole run under `CONTINUOUS`), in a run from the
    /// beginning.
    Step {
        /// The epoch.
        epoch: u64,
        /// The step.
        step: u64,
    },
}

/// A row of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowOrigin {
    /// File, relative to its source.
    pub file: String,
    /// Row in the file.
    pub row: u64,
    /// Row of `unnest`.
    pub child: u32,
    /// Hash of the row's key, which draws follow.
    pub key: u64,
    /// Key of the row's pass: a hash of seed and epoch.
    pub pass: u64,
}

/// What made a batch, and the batch.
#[derive(Debug, Clone)]
pub struct Provenance {
    /// Names the stream.
    pub stream: StreamName,
    /// Names the plan that computed the batch here.
    pub plan_hash: String,
    /// The epoch.
    pub epoch: u64,
    /// Number of the batch over all ranks in its span.
    pub batch_number: u64,
    /// Random functions by their streams. A draw is Philox 4x32-10 under a key made of the row's pass and the
    /// stream, at a counter made of the row's key and child.
    pub draws: BTreeMap<u64, String>,
    /// Its rows, in order; where rows are packed, those in its packs.
    pub rows: Vec<RowOrigin>,
    /// The batch.
    pub batch: RecordBatch,
    /// BLAKE3 of the batch's values.
    pub digest: String,
}

impl Session {
    /// What made a batch of a registered pipeline. It is computed again, and it alone; where filters, packs or
    /// buckets decide what a batch is, the columns that decide are read of all rows.
    ///
    /// # Errors
    /// There is no such pipeline or batch; a token of another stream.
    pub async fn which(
        &self,
        pipeline: &str,
        mut config: RunConfig,
        name: BatchName,
    ) -> Result<Provenance> {
        let planned = self.pipeline(pipeline).await?;
        let (world, rank) = (config.world.max(1), config.rank);
        let scope = planned.clauses.batch.unwrap_or_default().scope;
        let none = |why: &str| RunError::Config(format!("there is no such batch: {why}"));
        // Batches are numbered over all ranks, so one rank has each at the step of its number.
        let (epoch, number) = match (&name, scope) {
            (BatchName::Before(token), BatchScope::PerRank) => {
                let cursor = &token.cursor;
                // In the last step of a span, only so many ranks may have had one.
                let of_step = cursor.short.unwrap_or(world);
                if rank >= of_step {
                    let why = format!(
                        "before the token, rank {rank} of {world} had none of its own: {of_step} were left"
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
        let step = number.ok_or_else(|| none("none was received before the token"))?;
        if scope == BatchScope::PerRank {
            (config.world, config.rank) = (1, 0);
        }
        if let BatchName::Before(token) = &name {
            config.seed = config.seed.or(Some(token.stream.seed));
        }
        config.first_epoch = match planned.clauses.repeat.continuous {
            true => 0,
            false => epoch,
        };
        config.epochs = Some(epoch.saturating_add(1) - config.first_epoch);
        config.only = Only::Step { epoch, step };
        let compiled = compiled(&planned, &config, self.prices(), self.stores()).await?;
        let opened = Opened::new(&compiled, &config, self.stores()).await?;
        if let BatchName::Before(token) = &name {
            token.check(&opened.name)?;
        }
        let stream = opened.name.as_ref().clone();
        let mut run = opened.start();
        let Some(batch) = run.next().await else {
            return Err(none("the epoch has fewer, or this rank has none at the step").into());
        };
        let batch = batch?;
        let mut digest = Digest::new();
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
            plan_hash: compiled.plan_hash().map_err(|error| planning(&error))?,
            epoch: batch.epoch,
            batch_number: step,
            draws: draws(&compiled.written),
            rows: rows.collect(),
            batch: batch.batch.clone(),
            digest: digest.finish(),
        })
    }
}

/// The random functions of a plan, by their streams.
fn draws(plan: &RowPlan) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    plan.visit(&mut |node| {
        for expr in node.exprs() {
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
            // The visitor never fails.
            let _ = visited;
        }
    });
    found
}

impl Provenance {
    /// The same as a JSON object, but for the batch's values.
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
