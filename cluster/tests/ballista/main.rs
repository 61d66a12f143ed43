//! Leases over Ballista: a scheduler, workers and clients on this machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "a test waits for the tasks that it starts")]

mod blobs;
mod faults;
mod leases;
mod process;
mod soak;
mod stock;
mod support;
