//! A run that goes on from a token yields what the run would have yielded that was never stopped: through
//! shuffles, mixing, packing, buckets, filters, unnest and epochs, at any world, thread count and plan.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/draw.rs"]
mod draw;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use common::batches_of_p as run;
use draw::Draw;
use forebay::clauses::Optimize;
use forebay::{Batch, RunConfig, Session, Token};

/// Number of random pipelines, instead of 300.
const CASES_VARIABLE: &str = "FOREBAY_RESUME_CASES";

/// Rows with lists of different lengths, in files of different sizes.
fn write_json(folder: &Path, name: &str, files: u64, rows: u64) {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for file in 0..files {
        let mut lines = String::new();
        for row in 0..rows + 3 * file {
            let id = file * 100 + row;
            let ids: Vec<u64> = (0..1 + id * 31 % 9).map(|i| id * 10 + i).collect();
            writeln!(lines, r#"{{"id": {id}, "ids": {ids:?}}}"#).unwrap();
        }
        std::fs::write(folder.join(format!("{file}.json")), lines).unwrap();
    }
}

fn query(draw: &mut Draw) -> String {
    let columns = [
        "id, ids",
        "id + random_int(0, 1000) AS id, ids",
        "id, ids, 100 / (id % 11) AS may_fail",
    ];
    let filters = [
        "",
        "",
        " WHERE id % 3 <> 1",
        " WHERE id % 50 < 30 AND length(CAST(id AS VARCHAR)) < 3",
    ];
    let arm = |draw: &mut Draw, table: &str| {
        let filter = draw.pick(&filters);
        match draw.chance(50) {
            true => format!("(SELECT id, ids FROM {table}{filter})"),
            false => table.to_owned(),
        }
    };
    let (from, mixes) = match draw.whole(0, 4) {
        4 => (
            "(SELECT a.id, ids FROM a JOIN k ON a.id = k.key)".to_owned(),
            false,
        ),
        0 => ("a".to_owned(), false),
        1 => ("b".to_owned(), false),
        2 => (
            "(SELECT * FROM a UNION ALL SELECT * FROM b)".to_owned(),
            false,
        ),
        _ => {
            // One with many rows, one that is entered late, one of a single row that comes again and again.
            let (of_b, first, second) =
                draw.pick(&[("b", 0.7, 0.3), ("b", 0.95, 0.05), ("c", 0.5, 0.5)]);
            let (a, b) = (arm(draw, "a"), arm(draw, of_b));
            let stop = draw.pick(&["", ", stop => 'longest'"]);
            (
                format!("MIX ({a} WEIGHT {first}, {b} WEIGHT {second}{stop})"),
                true,
            )
        }
    };
    let filter = draw.pick(&filters);
    let columns = draw.pick(&columns);
    if !mixes && draw.chance(20) {
        return format!("SELECT id, unnest(ids) AS item FROM {from} AS t{filter}");
    }
    format!("SELECT {columns} FROM {from} AS t{filter}")
}

/// A random pipeline, and how many epochs it has.
fn pipeline(draw: &mut Draw) -> String {
    let mut sql = query(draw);
    let lists = sql.contains("ids") && !sql.contains("unnest");
    match draw.whole(0, 3) {
        0 => {}
        1 => sql += " SHUFFLE GLOBALLY",
        _ => write!(sql, " SHUFFLE WITHIN {} ROWS", draw.whole(1, 60)).unwrap(),
    }
    write!(sql, " SEED {}", draw.whole(0, 5)).unwrap();
    if draw.chance(20) {
        write!(sql, " SKIP {}", draw.whole(0, 30)).unwrap();
    }
    if draw.chance(20) {
        write!(sql, " TAKE {}", draw.whole(1, 90)).unwrap();
    }
    let mut replaces = true;
    match draw.whole(0, 5) {
        0 if lists => {
            // Shorter than some lists, which then fail.
            write!(sql, " PACK ids INTO {}", draw.whole(6, 30)).unwrap();
            replaces = false;
        }
        1 if lists => sql += " BUCKET BY length(CAST(id AS VARCHAR)) * 3 BOUNDARIES (3, 6, 9)",
        _ => {}
    }
    let packs = sql.contains("PACK");
    let by_tokens = lists && !packs && draw.chance(30);
    match by_tokens {
        true => write!(sql, " BATCH BY TOKENS {} ON ids", draw.whole(6, 60)).unwrap(),
        false => write!(sql, " BATCH {}", draw.whole(1, 13)).unwrap(),
    }
    sql += draw.pick(&["", "", " GLOBAL"]);
    sql += draw.pick(&[
        "",
        " DROP REMAINDER",
        if by_tokens || packs {
            ""
        } else {
            " PAD REMAINDER"
        },
    ]);
    if lists && !packs && draw.chance(30) {
        sql += draw.pick(&[" PAD ids", " PAD ids TO 10 WITH -1"]);
    }
    write!(sql, " REPEAT {}", draw.whole(1, 3)).unwrap();
    sql += draw.pick(&["", "", " CONTINUOUS"]);
    let policy = draw.pick(&["skip", "null", if replaces { "replace" } else { "skip" }]);
    write!(
        sql,
        " OPTIONS (on_error = '{policy}', horizon = {})",
        draw.whole(1, 4)
    )
    .unwrap();
    sql
}

/// How a stream is computed, which must not show.
fn config(draw: &mut Draw) -> RunConfig {
    RunConfig {
        threads: Some(draw.whole(1, 3) as usize),
        optimize: draw.chance(40).then_some(Optimize::None),
        segment_rows: draw.chance(60).then(|| draw.whole(1, 40)),
        ..RunConfig::default()
    }
}

/// The batches of all ranks, step by step: those of a step in the order of ranks, or put together where the
/// ranks have parts of one.
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
        // The rank's batches by one run, or by several that take turns.
        let turns = draw.pick(&[1, 1, 2, 3]);
        let mut parts = Vec::new();
        for turn in 0..turns {
            let config = RunConfig {
                rank,
                world,
                turn,
                turns,
                resume: resume.map(|token| Arc::new(token.clone())),
                ..config(draw)
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
        match global {
            true => {
                let schema = parts[0].batch.schema();
                let whole = concat_batches(&schema, parts.iter().map(|part| &part.batch)).unwrap();
                stream.push((parts[0].epoch, whole));
            }
            false => stream.extend(parts.iter().map(|part| (part.epoch, part.batch.clone()))),
        }
    }
    assert!(
        ranks.iter().all(|batches| batches.len() == taken),
        "steps differ"
    );
    let token = ranks[0].last().map(Batch::token);
    // Ranks that have no batch in a last step get one of no rows.
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
    // What a rank does within its own batch differs where another number of ranks splits the batch.
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
    // A batch of failed rows alone has none that could stand in.
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
    let (before, after) = match alone {
        true => (1, 1),
        false => (draw.whole(1, 3), draw.whole(1, 4)),
    };
    let steps = draw.whole(1, (whole.len() as u64).div_ceil(before)) as usize;
    let named = |why: String| format!("seed {seed}: {sql}: {why}");
    let first = world(session, &mut draw, None, before, steps, global).await;
    let (mut got, token) = first.map_err(named)?;
    let Some(token) = token else { return Ok(false) };
    // Through its text, as a checkpoint has it.
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

#[tokio::test(flavor = "multi_thread")]
async fn any_pipeline_goes_on_from_any_step_at_any_world() {
    let folder = tempfile::tempdir().unwrap();
    write_json(folder.path(), "a", 3, 25);
    write_json(folder.path(), "b", 2, 11);
    write_json(folder.path(), "c", 1, 1);
    let keys = folder.path().join("k");
    std::fs::create_dir(&keys).unwrap();
    let lines = (0..300).filter(|key| key % 4 != 3);
    let lines: String = lines.map(|key| format!("{{\"key\": {key}}}\n")).collect();
    std::fs::write(keys.join("k.json"), lines).unwrap();
    let session = Session::new();
    for table in ["a", "b", "c", "k"] {
        let path = folder.path().join(table);
        let sql = format!(
            "CREATE EXTERNAL TABLE {table} STORED AS JSON LOCATION '{}'",
            path.display()
        );
        session.execute(&sql).await.unwrap();
    }
    if let Ok(seed) = std::env::var("FOREBAY_RESUME_SEED") {
        check(&session, seed.parse().unwrap()).await.unwrap();
        return;
    }
    let cases = std::env::var(CASES_VARIABLE).map_or(300, |cases| cases.parse().unwrap());
    let (mut resumed, mut failed) = (0, Vec::new());
    for seed in 0..cases {
        match check(&session, seed).await {
            Ok(went_on) => resumed += u64::from(went_on),
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
