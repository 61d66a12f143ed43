//! `forebay run`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use forebay::digest::{Digest, RowsDigest};
use forebay::generate::{TableFormat, TableWriter};
use forebay::{Batch as RunBatch, Only, Run, RunConfig, RunStats, Token, letters};
use forebay_runtime::cpu::cpu_time;
use serde_json::json;

use super::args::{Delivery, DigestKind, ReplayArgs, RunArgs};
use super::failure::Failure;
use super::interrupt::Ending;
use super::progress::{Progress, rates};
use super::{out, output, token, units};

/// Runs a pipeline.
pub(crate) async fn execute(
    args: RunArgs,
    ending: &Ending,
    quiet: bool,
    started: Instant,
) -> Result<(), Failure> {
    let resume = args.resume.as_deref().map(token::read).transpose()?;
    // A token may take the place of the one before it; no other output may.
    out::refuse_inputs(&args.delivery.out, args.resume.as_deref())?;
    let save = match &args.save_token {
        Some(path) => {
            out::refuse_inputs(path, args.delivery.statements.files(&args.delivery.engine))?;
            if out::is_same(path, &args.delivery.out) {
                let why = "--out and --save-token name the same file: name two";
                return Err(Failure::Usage(why.to_owned()));
            }
            // Until the run begins, it stands where it is to go on.
            if let Some(resume) = &resume {
                ending.save(path, resume.clone());
            }
            Some(Save { path, ending })
        }
        None => None,
    };
    let of = RunConfig {
        resume: resume.map(Arc::new),
        ..RunConfig::default()
    };
    run(args.delivery, of, save, quiet, started).await
}

/// Where the resume token of a run goes when it ends.
struct Save<'a> {
    path: &'a Path,
    ending: &'a Ending,
}

impl Save<'_> {
    fn token(&self, token: Token) {
        self.ending.save(self.path, token);
    }
}

/// Runs the rows of dead letters again.
pub(crate) async fn replay(args: ReplayArgs, quiet: bool, started: Instant) -> Result<(), Failure> {
    let letters = letters::read(&args.letters).map_err(forebay::Error::from)?;
    out::refuse_inputs(&args.delivery.out, [args.letters.as_path()])?;
    let of = RunConfig {
        only: Only::Letters(Arc::new(letters)),
        ..RunConfig::default()
    };
    run(args.delivery, of, None, quiet, started).await
}

/// Runs what `of` says of a pipeline.
async fn run(
    args: Delivery,
    of: RunConfig,
    save: Option<Save<'_>>,
    quiet: bool,
    started: Instant,
) -> Result<(), Failure> {
    let format = out_format(&args.out)?;
    let out = format.map(|_| args.out.as_path());
    if let Some(out) = out {
        out::refuse_inputs(out, args.statements.files(&args.engine))?;
    }
    let saved = save.as_ref().map(|save| save.path);
    let session = out::session_for(out.into_iter().chain(saved))?;
    let pipeline = args.statements.load(&session).await?;
    let config = RunConfig {
        only: of.only,
        resume: of.resume,
        ..args.engine.config(args.limit_batches)?
    };
    let mut run = session.run(&pipeline, config).await?;
    let mut sink = Sink::new(&args.out, format, &run.schema(), args.digest)?;
    if let Some(save) = &save {
        save.token(run.beginning().clone());
    }
    // Rows of a file that does not come were not delivered: the run would go on from where it began.
    let is_direct = sink.is_direct();
    let mut last = None;
    let take = |batch: &RunBatch| {
        sink.take(&batch.batch)?;
        match &save {
            Some(save) if is_direct => save.token(batch.token()),
            Some(_) => last = Some(batch.token()),
            None => {}
        }
        Ok(())
    };
    let drained = drain(&mut run, quiet || args.json, take).await;
    let Drained {
        stats,
        first,
        total,
        cpu,
    } = match drained {
        Ok(drained) => drained,
        Err(failure) => {
            // What was seen up to a failure is worth knowing too.
            if !quiet {
                list_failures(&run.stats());
            }
            return Err(failure);
        }
    };
    let digest = sink.finish()?;
    if let (Some(save), Some(last)) = (&save, last) {
        save.token(last);
    }
    let seconds = total.as_secs_f64();
    if args.json {
        let failures: Vec<String> = stats.failures.iter().map(ToString::to_string).collect();
        return output::json(&json!({
            "pipeline": pipeline,
            "rows": stats.rows,
            "batches": stats.batches,
            "bytes": stats.bytes,
            "seconds": seconds,
            "cpu_seconds": cpu.as_secs_f64(),
            "rows_per_second": stats.rows as f64 / seconds.max(1e-9),
            "first_batch_seconds": first.map(|first| (first - started).as_secs_f64()),
            "skipped": stats.skipped,
            "replaced": stats.replaced,
            "nulled": stats.nulled,
            "failures": failures,
            "digest": digest,
            "peak_memory_bytes": peak_memory(),
        }));
    }
    if !quiet {
        list_failures(&stats);
        output::message(&format!(
            "{pipeline}: {} in {seconds:.2} s  {}",
            units::counted(stats.batches, "batch", "batches"),
            rates(&stats, total)
        ));
        if format.is_some() {
            output::message(&format!("written to {}", args.out.display()));
        }
    }
    digest.map_or(Ok(()), |digest| output::data(&digest))
}

/// What a run delivered, and when.
pub(crate) struct Drained {
    /// Counts of what was delivered; the engine's own run ahead of it.
    pub(crate) stats: RunStats,
    /// The arrival of the first batch.
    pub(crate) first: Option<Instant>,
    /// From the start of the run to its end.
    pub(crate) total: Duration,
    /// What processors worked for the process meanwhile.
    pub(crate) cpu: Duration,
}

/// Hands every batch of a run to `take`, showing progress.
pub(crate) async fn drain(
    run: &mut Run,
    quiet: bool,
    mut take: impl FnMut(&RunBatch) -> Result<(), Failure>,
) -> Result<Drained, Failure> {
    let (started, worked) = (Instant::now(), cpu_time());
    let (mut first, mut rows, mut batches, mut bytes) = (None, 0, 0, 0);
    let mut progress = Progress::new(quiet, run.steps());
    let counted = |run: &Run, rows, batches, bytes| RunStats {
        rows,
        batches,
        bytes,
        ..run.stats()
    };
    while let Some(batch) = run.next().await {
        let batch = batch.inspect_err(|_| progress.finish())?;
        first.get_or_insert_with(Instant::now);
        take(&batch)?;
        let batch = batch.batch;
        rows += batch.num_rows() as u64;
        batches += 1;
        bytes += batch.columns().iter().map(size).sum::<u64>();
        progress.update(&counted(run, rows, batches, bytes));
    }
    progress.finish();
    Ok(Drained {
        stats: counted(run, rows, batches, bytes),
        first,
        total: started.elapsed(),
        cpu: cpu_time().saturating_sub(worked),
    })
}

/// Bytes of a column's rows, without what lies around them in shared buffers.
fn size(column: &ArrayRef) -> u64 {
    column.to_data().get_slice_memory_size().unwrap_or_default() as u64
}

/// The format of `--out`; `None` where nothing is to be written.
fn out_format(out: &Path) -> Result<Option<TableFormat>, Failure> {
    if out == Path::new("none") {
        return Ok(None);
    }
    out::format(out).map(Some)
}

/// What becomes of the batches.
struct Sink {
    writer: Option<TableWriter>,
    batches: Option<Digest>,
    rows: Option<RowsDigest>,
    path: PathBuf,
}

impl Sink {
    fn new(
        path: &Path,
        format: Option<TableFormat>,
        schema: &SchemaRef,
        digest: Option<DigestKind>,
    ) -> Result<Self, Failure> {
        let writer = format
            .map(|format| TableWriter::create(path, format, schema))
            .transpose()?;
        Ok(Self {
            writer,
            batches: (digest == Some(DigestKind::Batches)).then(Digest::new),
            rows: (digest == Some(DigestKind::Rows)).then(RowsDigest::new),
            path: path.to_path_buf(),
        })
    }

    /// Whether batches are with their reader as soon as they are taken.
    fn is_direct(&self) -> bool {
        self.writer.as_ref().is_none_or(TableWriter::is_direct)
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let failed = |error: datafusion::error::DataFusionError| {
            Failure::Run(format!("cannot digest the batch: {error}"))
        };
        if let Some(digest) = &mut self.batches {
            digest.update(batch).map_err(failed)?;
        }
        if let Some(digest) = &mut self.rows {
            digest.update(batch).map_err(failed)?;
        }
        if let Some(writer) = &mut self.writer {
            writer.write(batch)?;
        }
        Ok(())
    }

    /// Ends the file and answers the digest.
    fn finish(self) -> Result<Option<String>, Failure> {
        if let Some(writer) = self.writer {
            writer.finish().map_err(|error| {
                // A full disk is told at the end of the file as well as in its middle.
                Failure::Run(format!(
                    "{error} (nothing was written to {})",
                    self.path.display()
                ))
            })?;
        }
        Ok(self
            .batches
            .map(|d| d.finish())
            .or_else(|| self.rows.map(|d| d.finish())))
    }
}

fn list_failures(stats: &RunStats) {
    let lost = stats.skipped + stats.replaced + stats.nulled;
    for failure in &stats.failures {
        output::message(&format!("failed: {failure}"));
    }
    let listed = stats.failures.len() as u64;
    if lost > listed && listed > 0 {
        output::message(&format!(
            "failed: {} more",
            units::counted(lost - listed, "row", "rows")
        ));
    }
}

/// The most memory that this process has held, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
