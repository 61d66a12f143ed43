//! A run that resumes from a token delivers the same batches as the uninterrupted run. This holds
//! with shuffles, mixing, packing, buckets, filters, unnest and several epochs, for any number of
//! ranks and threads, and for any plan.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/draw.rs"]
mod draw;
#[path = "common/sequences.rs"]
mod sequences;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use common::batches_of_p as run;
use common::parallel::{cores, on_threads};
use draw::Draw;
use forebay::clauses::Optimize;
use forebay::{
    Batch, ByName, RunConfig, RunInternals, SegmentEngine, Session, Token, WorkerStride,
};
use sequences::pipeline;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Environment variable with the number of random pipelines (default 300).
const CASES_VARIABLE: &str = "FOREBAY_RESUME_CASES";

/// Returns random settings that must not affect the stream.
fn config(draw: &mut Draw) -> RunConfig {
    RunConfig {
        threads: Some(draw.whole(1, 3) as usize),
        optimize: draw.chance(40).then_some(Optimize::Off),
        internals: RunInternals {
            segment_rows: draw.chance(60).then(|| draw.whole(1, 40)),
            // Segments are found by their names, as on workers.
            engine: draw.chance(40).then(|| {
                let at_once = draw.whole(1, 4) as usize;
                Arc::new(ByName { at_once }) as Arc<dyn SegmentEngine>
            }),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    }
}

/// Returns the batches of all ranks, step by step. The batches of a step are in the order of ranks,
/// or concatenated if the ranks share one batch.
async fn world(
    session: &Session,
    draw: &mut Draw,
    resume: Option<&Token>,
    world: u64,
    steps: usize,
    global: bool,
) -> Result<(Vec<(u64, RecordBatch)>, Option<Token>), String> {
    let mut ranks = Vec::new();
    for rank in 0..world {
        // The batches of this rank come from one run, or from several runs that take turns, as
        // loader workers do.
        let turns = draw.pick(&[1, 1, 2, 3]);
        let mut parts = Vec::new();
        for turn in 0..turns {
            let mut config = RunConfig {
                rank,
                world,
                resume: resume.map(|token| Arc::new(token.clone())),
                ..config(draw)
            };
            config.internals.stride = WorkerStride {
                first: turn,
                of: turns,
            };
            let steps = steps.saturating_sub(turn as usize);
            let part = run(session, config, steps.div_ceil(turns as usize)).await?;
            parts.push(part.into_iter());
        }
        let mut batches = Vec::new();
        while let Some(batch) = parts[batches.len() % turns as usize].next() {
            batches.push(batch);
        }
        if let Some(turn) = parts.iter().position(|part| part.len() > 0) {
            return Err(format!(
                "of {turns} runs, the one of turn {turn} has more batches"
            ));
        }
        ranks.push(batches);
    }
    let taken = ranks[0].len();
    let mut stream = Vec::new();
    for step in 0..taken {
        let parts: Vec<&Batch> = ranks.iter().map(|batches| &batches[step]).collect();
        let tokens: Vec<Token> = parts.iter().map(|batch| batch.token()).collect();
        assert!(
            tokens.iter().all(|token| *token == tokens[0]),
            "{tokens:#?}"
        );
        if global {
            let schema = parts[0].batch.schema();
            let whole = concat_batches(&schema, parts.iter().map(|part| &part.batch)).unwrap();
            stream.push((parts[0].epoch, whole));
        } else {
            stream.extend(parts.iter().map(|part| (part.epoch, part.batch.clone())))
        }
    }
    assert!(
        ranks.iter().all(|batches| batches.len() == taken),
        "steps differ"
    );
    let token = ranks[0].last().map(Batch::token);
    // In the last step, a rank without a batch delivers an empty batch, which is removed here.
    stream.retain(|(_, batch)| batch.num_rows() > 0);
    Ok((stream, token))
}

async fn check(session: &Session, seed: u64) -> Result<bool, String> {
    let mut draw = Draw::new(seed);
    let sql = pipeline(&mut draw);
    session
        .execute(&format!("CREATE OR REPLACE PIPELINE p AS {sql}"))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let global = sql.contains(" GLOBAL ");
    // If another number of ranks shares a batch, the shares have other rows, so other rows are
    // repeated or dropped within them.
    let within = global
        && ["PAD ids", "'replace'"]
            .iter()
            .any(|clause| sql.contains(clause));
    let alone = within || sql.contains("PAD REMAINDER");
    let all = usize::MAX;
    let one = RunConfig {
        threads: Some(1),
        ..RunConfig::default()
    };
    let whole = run(session, one, all).await;
    // With `on_error = 'replace'`, a batch in which all rows failed is an error.
    if matches!(&whole, Err(why) if why.contains("none can stand in")) {
        return Ok(false);
    }
    let whole = whole.map_err(|why| format!("seed {seed}: {sql}: {why}"))?;
    if whole.is_empty() {
        return Ok(false);
    }
    let expected: Vec<(u64, RecordBatch)> = { whole.iter() }
        .map(|batch| (batch.epoch, batch.batch.clone()))
        .filter(|(_, batch)| batch.num_rows() > 0)
        .collect();
    let (before, after) = if alone {
        (1, 1)
    } else {
        (draw.whole(1, 3), draw.whole(1, 4))
    };
    let steps = draw.whole(1, (whole.len() as u64).div_ceil(before)) as usize;
    let named = |why: String| format!("seed {seed}: {sql}: {why}");
    let first = world(session, &mut draw, None, before, steps, global).await;
    let (mut got, token) = first.map_err(named)?;
    let Some(token) = token else { return Ok(false) };
    // The token is serialised and parsed again, as in a checkpoint.
    let text = token.to_json().unwrap();
    let carried = token.carried().unwrap();
    let most = if carried == 0 {
        2048
    } else {
        2048 + 12 * carried
    };
    assert!(
        text.len() <= most,
        "{} bytes with {carried} rows",
        text.len()
    );
    let token = Token::from_json(&text).unwrap();
    let rest = world(session, &mut draw, Some(&token), after, all, global).await;
    let (rest, _) = rest.map_err(named)?;
    got.extend(rest);
    let shown = |stream: &[(u64, RecordBatch)]| -> String {
        let batches = stream.iter();
        batches
            .map(|(epoch, batch)| format!("{epoch}: {batch:?}\n"))
            .collect()
    };
    if got != expected {
        let at = got
            .iter()
            .zip(&expected)
            .take_while(|(a, b)| a == b)
            .count();
        return Err(format!(
            "seed {seed}: {sql}\nworld {before} for {steps} steps, then {after}: {} batches of {}, the first that \
             differs is {at}\ngot {}\nexpected {}\ntoken {text}",
            got.len(),
            expected.len(),
            shown(&got[at..(at + 2).min(got.len())]),
            shown(&expected[at..(at + 2).min(expected.len())]),
        ));
    }
    Ok(true)
}

/// A session with the tables that the pipelines read, and the runtime that runs them.
struct Setting {
    session: Session,
    runtime: Runtime,
    _folder: TempDir,
}

impl Setting {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let session = runtime.block_on(sequences::session(folder.path()));
        Self {
            session,
            runtime,
            _folder: folder,
        }
    }

    fn check(&self, seed: u64) -> Result<bool, String> {
        self.runtime.block_on(check(&self.session, seed))
    }
}

#[test]
fn any_pipeline_resumes_from_any_step_at_any_world_size() {
    if let Ok(seed) = std::env::var("FOREBAY_RESUME_SEED") {
        Setting::new().check(seed.parse().unwrap()).unwrap();
        return;
    }
    let cases = std::env::var(CASES_VARIABLE).map_or(300, |cases| cases.parse().unwrap());
    let results = on_threads(cores(), 0..cases, Setting::new, Setting::check);
    let (mut resumed, mut failed) = (0, Vec::new());
    for result in results {
        match result {
            Ok(had_more) => resumed += u64::from(had_more),
            Err(why) => failed.push(why),
        }
    }
    let first = |why: &String| why.lines().take(2).collect::<Vec<_>>().join("\n");
    let all: Vec<String> = failed.iter().map(first).collect();
    let all = all.join("\n");
    assert!(
        failed.is_empty(),
        "{} of {cases}:\n{all}\n\n{}",
        failed.len(),
        failed[0]
    );
    assert!(
        resumed * 10 > cases * 8,
        "only {resumed} of {cases} had anything to resume"
    );
}
