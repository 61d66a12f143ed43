//! Soundness of the optimiser: random pipelines are run as written, optimised in every tier, and with each rule
//! alone. Exact plans must give the same stream as the written plan, including errors. The streams
//! of higher tiers must satisfy the weaker guarantees of these tiers.
//!
//! | variable | meaning |
//! |---|---|
//! | `FOREBAY_SOUNDNESS_CASES` | number of random pipelines (default 2,000; nightly 20,000) |
//! | `FOREBAY_SOUNDNESS_SEED` | runs only the pipeline of this seed, and prints the pipeline |

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod case;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod data;
#[path = "../common/draw.rs"]
mod draw;
mod forbidden;
mod images;
mod pinned;
mod profiled;
mod rows;
mod stream;
mod values;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use forebay_planner::catalog::Catalog;
use tokio::runtime::{Builder, Runtime};

use crate::case::{Case, EXTENDED_SEEDS};
use crate::check::{Verdict, check, odd_prices};
use crate::common::parallel::{cores, on_threads};
use crate::draw::Draw;

const CASES: &str = "FOREBAY_SOUNDNESS_CASES";
const SEED: &str = "FOREBAY_SOUNDNESS_SEED";
/// Number of unsound pipelines after which the test stops.
const ENOUGH: usize = 12;
/// Maximum number of smaller pipelines to try while an unsound pipeline is reduced.
const SHRINKS: usize = 400;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Checks a pipeline. If a plan panics, the pipeline counts as unsound.
fn checked(runtime: &Runtime, catalog: &Catalog, case: &Case, seed: u64) -> Verdict {
    let odd = odd_prices(&mut Draw::new(!seed));
    let run = || runtime.block_on(check(catalog, case, &odd));
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().map(String::as_str);
        let what = what.or_else(|| panic.downcast_ref::<&str>().copied());
        Verdict::Unsound(format!("panic: {}", what.unwrap_or("without a message")))
    })
}

/// Reduces an unsound pipeline: leaves out one part at a time, as long as the smaller pipeline is
/// still unsound.
fn shrunk(
    runtime: &Runtime,
    catalog: &Catalog,
    case: Case,
    why: String,
    seed: u64,
) -> (Case, String) {
    let (mut case, mut why) = (case, why);
    let mut left = SHRINKS;
    'smaller: loop {
        for smaller in case.smaller() {
            if left == 0 {
                return (case, why);
            }
            left -= 1;
            if let Verdict::Unsound(still) = checked(runtime, catalog, &smaller, seed) {
                (case, why) = (smaller, still);
                continue 'smaller;
            }
        }
        return (case, why);
    }
}

#[derive(Debug, Default)]
struct Tally {
    sound: u64,
    failed: u64,
    settled: u64,
    empty: u64,
    plans: usize,
    refused: BTreeMap<String, u64>,
    fired: BTreeMap<&'static str, usize>,
    alone: BTreeMap<&'static str, u64>,
    unsound: Vec<String>,
}

impl Tally {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Refused(why) => {
                let kind = why.lines().next().unwrap_or_default().to_owned();
                *self.refused.entry(kind).or_default() += 1;
            }
            Verdict::Unsound(why) => self.unsound.push(why),
            Verdict::Sound(seen) => {
                self.sound += 1;
                self.failed += u64::from(seen.failed);
                self.settled += u64::from(seen.settled);
                self.empty += u64::from(seen.rows == 0);
                self.plans += seen.plans;
                for (rule, count) in seen.fired {
                    *self.fired.entry(rule).or_default() += count;
                }
                for rule in seen.alone {
                    *self.alone.entry(rule).or_default() += 1;
                }
            }
        }
    }
}

#[test]
fn every_tier_and_every_rule_alone_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = runtime().block_on(data::catalog(dir.path()));
    if let Some(seed) = number(SEED) {
        let case = Case::of(seed);
        println!("{}", case.sql());
        match checked(&runtime(), &catalog, &case, seed) {
            Verdict::Unsound(why) => {
                let (small, why) = shrunk(&runtime(), &catalog, case, why, seed);
                panic!("{}\n{why}", small.sql());
            }
            verdict => println!("{verdict:?}"),
        }
        return;
    }
    let wanted = number(CASES).unwrap_or(2_000);
    let tally = Mutex::new(Tally::default());
    let seeds = (EXTENDED_SEEDS..).take_while(|_| {
        let tally = tally.lock().unwrap();
        tally.sound < wanted && tally.unsound.len() < ENOUGH
    });
    on_threads(cores(), seeds, runtime, |runtime, seed| {
        let case = Case::of(seed);
        let mut verdict = checked(runtime, &catalog, &case, seed);
        if let Verdict::Unsound(why) = verdict {
            let written = case.sql();
            let (small, why) = shrunk(runtime, &catalog, case, why, seed);
            let small = small.sql();
            verdict =
                Verdict::Unsound(format!("{SEED}={seed}\n{written}\nsmaller: {small}\n{why}"));
        }
        tally.lock().unwrap().add(verdict);
    });
    let tally = tally.into_inner().unwrap();
    let refused: u64 = tally.refused.values().sum();
    println!(
        "{} sound pipelines in {} plans beside the written ones; {} ended in an error, {} settled \
         failed rows, {} gave no row; {refused} draws were refused",
        tally.sound, tally.plans, tally.failed, tally.settled, tally.empty,
    );
    println!("fired {:#?}", tally.fired);
    println!("pipelines in which a rule fired alone {:#?}", tally.alone);
    println!("refused {:#?}", tally.refused);
    assert!(
        tally.unsound.is_empty(),
        "{} unsound pipelines\n\n{}",
        tally.unsound.len(),
        tally.unsound.join("\n\n")
    );
    assert!(
        tally.sound * 5 >= (tally.sound + refused) * 4,
        "at least four of five random pipelines should be usable: {refused} of {} are not",
        tally.sound + refused
    );
}

fn calls_function(sql: &str, name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    sql.match_indices(&format!("{name}("))
        .any(|(at, _)| !sql[..at].ends_with(word))
}

#[test]
fn the_generator_calls_every_function_of_the_catalogue() {
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in EXTENDED_SEEDS..EXTENDED_SEEDS + 2_000 {
        let sql = Case::of(seed).sql();
        for info in forebay_udfs::catalogue() {
            let called = calls_function(&sql, info.name);
            *calls.entry(info.name).or_default() += u64::from(called);
        }
    }
    let rare: Vec<_> = calls.iter().filter(|(_, calls)| **calls < 20).collect();
    assert!(
        rare.is_empty(),
        "hardly drawn: {rare:?}; add them to images.rs or values.rs"
    );
}
