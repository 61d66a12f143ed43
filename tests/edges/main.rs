//! Regression tests at the edges of the contract: damaged rows, changed data, interrupted runs, hostile sizes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod changed_data;
#[path = "../common/mod.rs"]
mod common;
mod damaged_photos;
#[path = "../common/draw.rs"]
mod draw;
#[cfg(unix)]
mod files;
mod function_list;
mod functions;
#[path = "../common/garbage.rs"]
mod garbage;
mod hidden;
mod kernels;
mod needed;
mod planning;
mod replay;
mod segments;
#[path = "../common/tar.rs"]
mod tar;
mod webdataset;
mod written_types;
