//! The engine that carries leases over Apache DataFusion Ballista.
//!
//! A lease is a Ballista job of one task. The client asks a small service in the scheduler's
//! process for it, the scheduler gives the task to a worker, the worker keeps the result in memory,
//! and the client fetches the result from the worker. Nothing here reads a lease or its result.
//! Stock Ballista clients can run their jobs on the same cluster.
//!
//! | process | is |
//! |---|---|
//! | scheduler | [`Scheduler`]: Ballista's scheduler, and beside it submission, a store of blobs, and the removal of dead workers |
//! | worker | [`Worker`]: a Ballista executor that passes leases to a [`LeaseHandler`](crate::handler::LeaseHandler) |
//! | client | [`BallistaEngine`] |

mod blob_source;
mod blob_store;
mod blob_stream;
mod board;
mod client;
mod client_board;
mod client_error;
mod codec;
mod connection;
mod context;
mod encode;
mod error;
mod execution;
mod executor;
mod fetch;
mod flight;
mod front;
mod gateway;
mod http;
mod jobs;
mod lease;
mod liveness;
mod members;
mod metrics;
mod options;
mod placement;
mod policy;
mod result_store;
mod rpc;
mod scheduler;
mod security;
mod server;
mod service;
mod status;
mod submission;
mod task;
mod tls;
mod wire;
mod worker;
mod worker_server;

pub use client::BallistaEngine;
pub use error::StartError;
pub use options::{EngineOptions, SchedulerOptions, WorkerOptions};
pub use scheduler::Scheduler;
pub use security::Security;
pub use status::{ClientStatus, ClusterStatus, WorkerStatus};
pub use tls::TlsSettings;
pub use worker::Worker;

#[cfg(test)]
mod tests;
