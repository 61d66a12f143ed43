//! `forebay run` and `forebay replay`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use forebay::digest::{Digest, RowsDigest};
use forebay::generate::{TableFormat, TableWriter};
use forebay::{
    Batch as RunBatch, Run, RunConfig, RunInternals, RunScope, RunStats, Token, dead_letters,
};
use forebay_runtime::cpu::cpu_time;
use serde_json::json;

use super::args::{DeliveryArgs, DigestKind, ReplayArgs, RunArgs};
use super::failure::CommandFailure;
use super::interrupt::Ending;
use super::progress::{Progress, rates};
use super::{console, export, input, session, units};

/// Runs a pipeline.
pub(crate) async fn execute(
    args: RunArgs,
    ending: &Ending,
    quiet: bool,
    started: Instant,
) -> Result<(), CommandFailure> {
    let resume = args.resume.as_deref().map(input::token).transpose()?;
    // The new token may replace the token to resume from. No other output may be an input.
    export::refuse_inputs(&args.delivery.out, args.resume.as_deref())?;
    let save = match &args.save_token {
        Some(path) => {
            export::refuse_inputs(path, args.delivery.statements.files(&args.delivery.engine))?;
            if export::is_same(path, &args.delivery.out) {
                let why = "--out and --save-token name the same file: name two different files";
                return Err(CommandFailure::Usage(why.to_owned()));
            }
            // Until the run begins, the token to save is the token to resume from.
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

/// The file to which the resume token is written when a run ends.
struct Save<'a> {
    path: &'a Path,
    ending: &'a Ending,
}

impl Save<'_> {
    fn token(&self, token: Token) {
        self.ending.save(self.path, token);
    }
}

/// Runs the rows of a dead-letter table again.
pub(crate) async fn replay(
    args: ReplayArgs,
    quiet: bool,
    started: Instant,
) -> Result<(), CommandFailure> {
    let letters = dead_letters::read(&args.letters).map_err(forebay::Error::from)?;
    export::refuse_inputs(&args.delivery.out, [args.letters.as_path()])?;
    let of = RunConfig {
        internals: RunInternals {
            scope: RunScope::DeadLetters(Arc::new(letters)),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    run(args.delivery, of, None, quiet, started).await
}

/// Runs a pipeline over the rows that `of` selects, starting at the resume token in `of`, if any.
async fn run(
    args: DeliveryArgs,
    of: RunConfig,
    save: Option<Save<'_>>,
    quiet: bool,
    started: Instant,
) -> Result<(), CommandFailure> {
    let format = out_format(&args.out)?;
    let out = format.map(|_| args.out.as_path());
    if let Some(out) = out {
        export::refuse_inputs(out, args.statements.files(&args.engine))?;
    }
    let saved = save.as_ref().map(|save| save.path);
    let session = session::guarding(out.into_iter().chain(saved), &args.statements.machines)?;
    let pipeline = args.statements.load(&session).await?;
    let config = RunConfig {
        internals: of.internals,
        resume: of.resume,
        ..args.engine.config(args.limit_batches)?
    };
    let mut run = session.run(&pipeline, config).await?;
    let mut sink = Sink::new(&args.out, format, &run.schema(), args.digest)?;
    if let Some(save) = &save {
        save.token(run.beginning().clone());
    }
    // An unfinished output file delivers nothing. Until the file is finished, the token to save is
    // the token of the run's beginning.
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
    if drained.is_err() && !quiet {
        // Rows that failed before the run failed are reported, too.
        list_failures(&run.stats());
    }
    let Drained {
        stats,
        first,
        total,
        cpu,
    } = drained?;
    let digest = sink.finish()?;
    if let (Some(save), Some(last)) = (&save, last) {
        save.token(last);
    }
    let seconds = total.as_secs_f64();
    if args.json {
        let failures: Vec<String> = stats.failures.iter().map(ToString::to_string).collect();
        return console::json(&json!({
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
        console::message(&format!(
            "{pipeline}: {} in {seconds:.2} s  {}",
            units::counted(stats.batches, "batch", "batches"),
            rates(&stats, total)
        ));
        if format.is_some() {
            console::message(&format!("written to {}", args.out.display()));
        }
    }
    digest.map_or(Ok(()), |digest| console::data(&digest))
}

/// Counts and times of a run, after all of its batches are delivered.
pub(crate) struct Drained {
    /// Counts over the delivered batches. The engine's own counts include prefetched batches.
    pub(crate) stats: RunStats,
    /// Arrival time of the first batch; `None` if no batch arrived.
    pub(crate) first: Option<Instant>,
    /// Time from the start of the run to its end.
    pub(crate) total: Duration,
    /// CPU time of the process during the run.
    pub(crate) cpu: Duration,
}

/// Runs `run` to its end, passes every batch to `take`, and shows the progress.
pub(crate) async fn drain(
    run: &mut Run,
    quiet: bool,
    mut take: impl FnMut(&RunBatch) -> Result<(), CommandFailure>,
) -> Result<Drained, CommandFailure> {
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

/// Returns the size of a column, in bytes, without the parts of shared buffers that belong to other
/// rows.
fn size(column: &ArrayRef) -> u64 {
    column.to_data().get_slice_memory_size().unwrap_or_default() as u64
}

/// Returns the format of `--out`; `None` if no file is written.
fn out_format(out: &Path) -> Result<Option<TableFormat>, CommandFailure> {
    if out == Path::new("none") {
        return Ok(None);
    }
    export::format(out).map(Some)
}

/// The destination of batches: a file, a digest, both or neither.
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
    ) -> Result<Self, CommandFailure> {
        let writer = format
            .map(|format| TableWriter::create(path, format, schema))
            .transpose()?;
        Ok(Self {
            writer,
            batches: (digest == Some(DigestKind::Batches)).then(Digest::default),
            rows: (digest == Some(DigestKind::Rows)).then(RowsDigest::default),
            path: path.to_path_buf(),
        })
    }

    /// True if each batch counts as delivered at once: no file is written, or the output is a pipe,
    /// whose reader sees each batch as soon as the batch is written.
    fn is_direct(&self) -> bool {
        self.writer.as_ref().is_none_or(TableWriter::is_direct)
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), CommandFailure> {
        let failed = |error: datafusion::error::DataFusionError| {
            CommandFailure::Run(format!("cannot digest the batch: {error}"))
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

    /// Finishes the file, and returns the digest if one was requested.
    fn finish(self) -> Result<Option<String>, CommandFailure> {
        if let Some(writer) = self.writer {
            writer.finish().map_err(|error| {
                // A full disk may be reported only when the file is finished.
                CommandFailure::Run(format!(
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
        console::message(&format!("failed: {failure}"));
    }
    let listed = stats.failures.len() as u64;
    if lost > listed && listed > 0 {
        console::message(&format!(
            "failed: {} more",
            units::counted(lost - listed, "row", "rows")
        ));
    }
}

/// Returns the peak memory of this process, in bytes; `None` if the system does not report it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
