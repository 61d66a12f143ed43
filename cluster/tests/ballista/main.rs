//! Leases over Ballista: a scheduler, workers and clients on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test waits for the tasks that it starts")]

mod authority;
mod blobs;
mod faults;
mod garbage;
mod leases;
mod process;
mod resets;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../chaos/rng.rs"]
mod rng;
mod soak;
mod status;
mod stock;
mod support;
mod tls;
