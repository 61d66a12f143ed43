//! The scheduler's and the workers' side of the engine.
//!
//! A module of its own, because Ballista's scheduler and executor turn on tokio's feature
//! `parking_lot`, whose table of waiting threads does not survive `fork`. A client does: training
//! programs fork, and link the client's side alone.

mod alarm;
mod blob_receiver;
mod blob_source;
mod blob_store;
mod board;
mod client_board;
mod codec;
mod connection;
mod context;
mod encode;
mod execution;
mod executor;
mod flight;
mod front;
mod gateway;
mod grpc;
mod http;
mod ipc_message;
mod jobs;
mod lease;
mod liveness;
mod members;
mod metrics;
mod options;
mod own_runtime;
mod policy;
mod result_store;
mod scheduler;
mod security;
mod service;
mod status;
mod submission;
mod watch;
mod worker;
mod worker_server;

pub use options::{SchedulerOptions, WorkerOptions};
pub use scheduler::Scheduler;
pub use worker::Worker;

#[cfg(test)]
mod tests;
