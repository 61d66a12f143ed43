//! Runs pipelines through the engine's interface, and records their behaviour. Apart from
//! `planning.rs` and the modules shared with other tests, only this file of the test uses the
//! engine.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use forebay::{
    Batch, Error, RunConfig, RunInternals, RunStats, Session, Token, WorkerStride, dead_letters,
};
use forebay_planner::compile::Compiled;
use forebay_planner::error::PlanError;
use forebay_runtime::cache::Stores;
use forebay_runtime::error::Error as RunError;
use forebay_runtime::run::JobRun;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::runtime::Builder;

use crate::common::{digest, keys};
use crate::corpus::Pipeline;
use crate::data::Data;
use crate::golden::Golden;
use crate::planning::{compiled, session};
use crate::record::{Record, Step, Stream, short};

/// Environment variable with the number of compute threads of the runs.
const THREADS: &str = "FOREBAY_GOLDENS_THREADS";

/// The part of the stream that a run delivers: the batches of a rank, or of one of the rank's
/// loader workers.
#[derive(Debug, Clone, Copy)]
struct Place {
    rank: u64,
    world: u64,
    turns: u64,
}

const ALONE: Place = at(0, 1);

const fn at(rank: u64, world: u64) -> Place {
    Place {
        rank,
        world,
        turns: 1,
    }
}

/// Runs a pipeline in all recorded ways, and returns the golden with everything observed.
pub(crate) fn observed(pipeline: &Pipeline, data: &Data) -> Golden {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(observe(pipeline, data))
}

/// Runs a pipeline through a session, and returns the golden with its stream and dead letters. If it
/// has a cache, it runs again and must yield the same.
#[allow(dead_code, reason = "only runs on workers are recorded in part")]
pub(crate) async fn observed_by_session(pipeline: &Pipeline, data: &Data) -> Golden {
    let mut record = Record::new(pipeline, data);
    match session(pipeline, data).await {
        Err(error) => record.error("refused", class(&error), &error.to_string()),
        Ok(session) => {
            let mut observer = Observer {
                pipeline,
                data,
                record: &mut record,
            };
            let (stream, known) = observer.by_session(&session).await;
            observer.record.put("known", known);
            observer.record.stream("1", &stream);
            observer.letters();
            if pipeline.query.contains("{cache}") {
                let (again, _) = observer.by_session(&session).await;
                let of = |stream: &Stream| (stream.digest.clone(), stream.failures.clone());
                assert_eq!(of(&again), of(&stream), "{}", pipeline.name);
            }
        }
    }
    record.golden(String::new())
}

async fn observe(pipeline: &Pipeline, data: &Data) -> Golden {
    let mut record = Record::new(pipeline, data);
    let explanation = match session(pipeline, data).await {
        Err(error) => {
            record.error("refused", class(&error), &error.to_string());
            String::new()
        }
        Ok(session) => {
            let explanation = explained(&session, pipeline, data).await;
            let observer = Observer {
                pipeline,
                data,
                record: &mut record,
            };
            observer.all(session).await;
            explanation
        }
    };
    record.golden(explanation)
}

/// Returns the text of EXPLAIN, which contains no measured times.
async fn explained(session: &Session, pipeline: &Pipeline, data: &Data) -> String {
    let config = RunConfig {
        threads: Some(1),
        ..RunConfig::default()
    };
    let text = match session.explain(&pipeline.name, config, false).await {
        Ok(found) if pipeline.is_verbose => found.verbose().to_string(),
        Ok(found) => found.to_string(),
        Err(error) => format!("{}: {error}", class(&error)),
    };
    // EXPLAIN may create the cache folder of the pipeline, which later runs must not find.
    let _ = std::fs::remove_dir_all(data.cache(&pipeline.name));
    text
}

/// Runs a pipeline in all recorded ways, and adds the results to `record`.
struct Observer<'a, 'r> {
    pipeline: &'a Pipeline,
    data: &'a Data,
    record: &'r mut Record<'a>,
}

impl Observer<'_, '_> {
    async fn all(mut self, session: Session) {
        let name = &self.pipeline.name;
        // A session keeps its caches open, but the folder of the cache that EXPLAIN opened was
        // removed. So a pipeline with a cache gets a new session.
        let session = match self.pipeline.query.contains("{cache}") {
            true => self::session(self.pipeline, self.data).await.unwrap(),
            false => session,
        };
        let compiled = match compiled(&session, name).await {
            Ok(compiled) => compiled,
            Err(why) => return self.record.error("unplanned", "plan", &why),
        };
        let hash = compiled.plan_hash().unwrap();
        self.record.put("semantic", compiled.semantic_hash);
        self.record.put("plan", hash);
        let (by_session, known) = self.by_session(&session).await;
        self.record.put("known", known);
        self.forget();
        let whole = self.stream(&compiled, ALONE, None).await;
        self.record.whole(&whole);
        self.record.same("session", &by_session, &whole);
        self.letters();
        if whole.cached.is_some() {
            let warm = self.stream(&compiled, ALONE, None).await;
            self.record.put("cached", cached(&whole));
            self.record.put("cached.warm", cached(&warm));
            self.record.same("warm", &warm, &whole);
        }
        self.resumed(&compiled, &whole, "1", ALONE, at(1, 2)).await;
        let mut second = None;
        for rank in 0..2 {
            let stream = self.stream(&compiled, at(rank, 2), None).await;
            self.record.stream(&format!("2.{rank}"), &stream);
            second = Some(stream);
        }
        if let Some(second) = second {
            self.resumed(&compiled, &second, "2.1", at(1, 2), ALONE)
                .await;
        }
        if self.pipeline.is_wide {
            for rank in 0..3 {
                let stream = self.stream(&compiled, at(rank, 3), None).await;
                self.record.stream(&format!("3.{rank}"), &stream);
            }
            let turns = Place { turns: 2, ..ALONE };
            let stream = self.stream(&compiled, turns, None).await;
            self.record.stream("1.turn", &stream);
        }
    }

    /// Records the tokens after the first and the middle batch of the stream `whole`, and the
    /// streams that resume from these tokens. Both resume with the same rank and world, and the
    /// middle one also with other ranks and worlds.
    async fn resumed(
        &mut self,
        compiled: &Compiled,
        whole: &Stream,
        of: &str,
        here: Place,
        there: Place,
    ) {
        let Some(first) = whole.steps.first() else {
            return;
        };
        self.record.token(&format!("{of}.token"), &first.token);
        let rest = self.stream(compiled, here, Some(&first.token)).await;
        self.record.stream(&format!("{of}.rest"), &rest);
        let middle = (whole.steps.len() - 1) / 2;
        let token = &whole.steps[middle].token;
        if middle > 0 {
            self.record.token(&format!("{of}.token.middle"), token);
            let rest = self.stream(compiled, here, Some(token)).await;
            self.record.stream(&format!("{of}.rest.middle"), &rest);
        }
        let rest = self.stream(compiled, there, Some(token)).await;
        let place = format!("{of}.rest.at.{}.{}", there.world, there.rank);
        self.record.stream(&place, &rest);
    }

    fn config(&self, place: Place, threads: usize, resume: Option<&str>) -> RunConfig {
        RunConfig {
            rank: place.rank,
            world: place.world,
            threads: Some(threads),
            limit_batches: self.pipeline.limit,
            internals: RunInternals {
                stride: WorkerStride {
                    first: place.turns - 1,
                    of: place.turns,
                },
                segment_rows: self.pipeline.segment_rows,
                ..RunInternals::default()
            },
            resume: resume.map(|text| Arc::new(Token::from_json(text).unwrap())),
            ..RunConfig::default()
        }
    }

    /// Returns the stream of a run of the session, which plans the pipeline itself, and the
    /// properties of the run that are known before any row is read.
    async fn by_session(&self, session: &Session) -> (Stream, String) {
        let config = self.config(ALONE, 1, None);
        let mut run = match session.run(&self.pipeline.name, config).await {
            Ok(run) => run,
            Err(error) => return (ended(class(&error), &error), "nothing".to_owned()),
        };
        let known = format!(
            "steps {:?}, rows {:?}, rows of an epoch {:?}, seed {}",
            run.steps(),
            run.expected_rows(),
            run.epoch_rows(),
            run.seed()
        );
        let (mut batches, mut end) = (Vec::new(), None);
        while let Some(batch) = run.next().await {
            match batch {
                Ok(batch) => batches.push(batch),
                Err(error) => end = Some((class(&error), error.to_string())),
            }
        }
        let stream = stream(&batches, end, run.stats(), run.cached());
        (stream, known)
    }

    /// Returns the stream of the plan `compiled` for a rank or worker, from the beginning or from
    /// the token `resume`.
    async fn stream(&self, compiled: &Compiled, place: Place, resume: Option<&str>) -> Stream {
        let threads = std::env::var(THREADS).map_or(1, |threads| threads.parse().unwrap());
        let config = self.config(place, threads, resume);
        let opened = match JobRun::open(compiled, &config, &Stores::default()).await {
            Ok(opened) => opened,
            Err(error) => return ended(class_of_run(&error), &error),
        };
        let data = opened.token().stream.snapshot_hash;
        let mut run = opened.start();
        let (mut batches, mut end) = (Vec::new(), None);
        while let Some(batch) = run.next().await {
            match batch {
                Ok(batch) => batches.push(batch),
                Err(error) => end = Some((class_of_run(&error), error.to_string())),
            }
        }
        Stream {
            data: Some(data),
            ..stream(&batches, end, run.stats(), run.cached())
        }
    }

    /// Removes the caches and dead letters that earlier runs of the pipeline have written.
    fn forget(&self) {
        for folder in [
            self.data.cache(&self.pipeline.name),
            self.data.dead(&self.pipeline.name),
        ] {
            let _ = std::fs::remove_dir_all(folder);
        }
    }

    fn letters(&mut self) {
        let folder = self.data.dead(&self.pipeline.name);
        if !folder.exists() {
            return;
        }
        for (number, letter) in dead_letters::read(&folder).unwrap().iter().enumerate() {
            let dead_letters::DeadLetter {
                epoch,
                step,
                pass,
                occurrence,
                file,
                row,
                child,
                ..
            } = letter;
            let text = format!(
                "epoch {epoch} step {step} pass {pass:016x} source {occurrence} {file} row {row}.{child}"
            );
            self.record.put(&format!("letter.{number}"), text);
        }
        self.record.put("letters", table_hash(&folder, self.data));
    }
}

/// Returns a hash of all rows and columns of the dead letters in a folder, which does not depend on
/// the order of the rows or files.
fn table_hash(folder: &Path, data: &Data) -> String {
    let mut rows = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let file = File::open(file.unwrap().path()).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let singles = (0..batch.num_rows()).map(|row| [batch.slice(row, 1)]);
            rows.extend(singles.map(|row| pretty_format_batches(&row).unwrap().to_string()));
        }
    }
    // The width of a printed table depends on the length of the folder's path, so padding and
    // borders are removed.
    let texts = rows
        .iter()
        .map(|row| data.masked(row).replace([' ', '-'], ""));
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    short(&texts.join("\n"))
}

/// Returns the record of a stream that ended with an error before its first batch.
fn ended(class: &'static str, error: &dyn std::fmt::Display) -> Stream {
    let end = Some((class, error.to_string()));
    stream(&[], end, RunStats::default(), None)
}

fn cached(stream: &Stream) -> String {
    let (read, computed) = stream.cached.unwrap_or_default();
    format!("{read} rows read, {computed} computed")
}

fn stream(
    batches: &[Batch],
    end: Option<(&'static str, String)>,
    stats: RunStats,
    cached: Option<(u64, u64)>,
) -> Stream {
    let steps = batches.iter().map(|batch| Step {
        epoch: batch.epoch,
        step: batch.step,
        rows: batch.batch.num_rows(),
        padded: batch.padded,
        token: batch.token().to_json().unwrap(),
    });
    let epochs = batches.chunk_by(|a, b| a.epoch == b.epoch);
    let epochs = epochs.map(|of| (of[0].epoch, short(&digest(of))));
    Stream {
        data: None,
        steps: steps.collect(),
        digest: digest(batches),
        keys: short(&format!("{:?}", keys(batches))),
        epochs: epochs.collect(),
        end,
        counts: format!(
            "rows {}, batches {}, bytes {}, skipped {}, replaced {}, nulled {}",
            stats.rows, stats.batches, stats.bytes, stats.skipped, stats.replaced, stats.nulled
        ),
        failures: stats.failures.iter().map(|f| f.to_string()).collect(),
        cached,
    }
}

/// Returns the class of an error, with the exit code of the command line for this class.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Plan(PlanError::Mistake(_)) => "mistake (exit code 2)",
        Error::Plan(PlanError::Source { .. }) => "source (exit code 2)",
        Error::Plan(PlanError::Saved(_)) => "saved plan (exit code 2)",
        Error::Plan(_) => "internal, of the plan (exit code 1)",
        Error::Run(error) => class_of_run(error),
        _ => "unknown",
    }
}

fn class_of_run(error: &RunError) -> &'static str {
    match (error, error.is_user()) {
        (RunError::Row(_), true) => "row (exit code 2)",
        (RunError::Memory { .. }, true) => "memory (exit code 2)",
        (RunError::Budget { .. }, true) => "budget (exit code 2)",
        (RunError::Function { .. }, true) => "function (exit code 2)",
        (RunError::Resume(_), true) => "resume (exit code 2)",
        (RunError::Config(_), true) => "config (exit code 2)",
        (RunError::Engine(_), true) => "engine (exit code 2)",
        (RunError::Room(_), true) => "room (exit code 2)",
        (_, true) => "another (exit code 2)",
        (_, false) => "internal, of the run (exit code 1)",
    }
}
