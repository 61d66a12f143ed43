//! Leases over Ballista: a scheduler, workers and clients on this machine.
#![cfg(feature = "ballista")]

mod blobs;
mod faults;
mod leases;
mod process;
mod stock;
mod support;
