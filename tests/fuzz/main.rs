//! Black-box fuzzers. By default, each fuzzer runs a small number of random cases;
//! `FOREBAY_FUZZ_CASES` sets another number.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cases;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/draw.rs"]
mod draw;
mod expressions;
mod files;
#[path = "../common/garbage.rs"]
mod garbage;
mod json;
mod plans;
#[path = "../common/tar.rs"]
mod tar;
mod tokens;
