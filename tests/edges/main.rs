//! Regression tests at the edges of the contract: damaged rows, changed data, interrupted runs, hostile sizes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[cfg(unix)]
mod files;
