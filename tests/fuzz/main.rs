//! Black-box fuzzers. Each runs a small number of cases in the suite; `FOREBAY_FUZZ_CASES` sets another number.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod files;
