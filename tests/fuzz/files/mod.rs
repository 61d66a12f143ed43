//! Malformed files of every format: each file is either read or refused with an error, within
//! limits of time and memory.
//!
//! The cases run in child processes of this binary, many cases per process. If a child dies, hangs
//! or takes too much memory, the case that it was running has failed, and another child runs the
//! remaining cases. `FOREBAY_FUZZ_CASES=10000 cargo test --test fuzz files -- --nocapture` runs
//! that many cases per format; `FOREBAY_FUZZ_ONLY='avro 17'` runs a single one.

mod mutate;
mod samples;
mod worker;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use samples::Format;

use crate::common::parallel::on_threads;

/// Number of cases per format, unless the environment variable FOREBAY_FUZZ_CASES sets another
/// number.
const CASES: u64 = 60;

/// Number of child processes that run concurrently.
const CHILDREN: usize = 2;
/// Maximum number of cases that a child process runs.
const CHUNK: u64 = 500;

/// The results of running cases of a format.
#[derive(Debug, Default)]
struct Tally {
    read: u64,
    refused: u64,
    /// Cases that killed their child process, or gave a wrong result.
    failed: Vec<String>,
    slowest: Duration,
    /// Peak memory of a child process, in mebibytes.
    largest: u64,
}

#[test]
fn malformed_files_are_read_or_refused() {
    if worker::is_child() {
        return;
    }
    if let Ok(only) = std::env::var("FOREBAY_FUZZ_ONLY") {
        let (format, case) = only.split_once(' ').unwrap();
        let format = Format::ALL
            .into_iter()
            .find(|f| f.name() == format)
            .unwrap();
        let tally = run(format, case.parse().unwrap(), 1);
        assert!(tally.failed.is_empty(), "{:?}", tally.failed);
        return;
    }
    let cases = std::env::var("FOREBAY_FUZZ_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let mut failed = Vec::new();
    for format in Format::ALL {
        let started = Instant::now();
        let mut total = Tally::default();
        let chunks = (0..cases).step_by(CHUNK as usize);
        let run = |_: &(), first| run(format, first, CHUNK.min(cases - first));
        for tally in on_threads(CHILDREN, chunks, || (), run) {
            total.read += tally.read;
            total.refused += tally.refused;
            total.failed.extend(tally.failed);
            total.slowest = total.slowest.max(tally.slowest);
            total.largest = total.largest.max(tally.largest);
        }
        println!(
            "{:8} {} cases: {} read, {} refused, {} failed; slowest {:?}, largest {} MiB, {:?} in all",
            format.name(),
            cases,
            total.read,
            total.refused,
            total.failed.len(),
            total.slowest,
            total.largest,
            started.elapsed(),
        );
        failed.extend(total.failed);
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs `count` cases of a format from the case number `first`, in child processes, one after the
/// other.
fn run(format: Format, first: u64, count: u64) -> Tally {
    let mut tally = Tally::default();
    let mut next = first;
    while next < first + count {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "files::worker::child", "--nocapture"])
            .env(
                worker::CASES,
                format!("{} {next} {}", format.name(), first + count - next),
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut last = None;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some(told) = line.split("case ").nth(1) else {
                continue;
            };
            let words: Vec<&str> = told.splitn(5, ' ').collect();
            let case: u64 = words[0].parse().unwrap();
            match words[1] {
                "begins" => last = Some(case),
                "read" => tally.read += 1,
                "refused" => tally.refused += 1,
                "wrong" => tally.failed.push(format!(
                    "{} {case}: {}",
                    format.name(),
                    words[2..].join(" ")
                )),
                _ => {}
            }
            if let ("read" | "refused", [_, _, millis, mebibytes, ..]) =
                (words[1], words.as_slice())
            {
                tally.slowest = tally
                    .slowest
                    .max(Duration::from_millis(millis.parse().unwrap()));
                tally.largest = tally.largest.max(mebibytes.parse().unwrap());
            }
        }
        let status = child.wait().unwrap();
        if status.success() {
            break;
        }
        let case = last.unwrap();
        tally.failed.push(format!(
            "{} {case}: the process ended with {status}",
            format.name()
        ));
        next = case + 1;
    }
    tally
}
