//! The engine that carries leases over Apache DataFusion Ballista.
//!
//! A lease is a Ballista job of one task. The client asks a small service in the scheduler's
//! process for it, the scheduler gives the task to a worker, the worker keeps the result in memory,
//! and the client fetches the result from the worker. Nothing here reads a lease or its result.
//! Stock Ballista clients can run their jobs on the same cluster.
//!
//! | process | is | feature |
//! |---|---|---|
//! | scheduler | `Scheduler`: Ballista's scheduler, and beside it submission, a store of blobs, and the removal of dead workers | `ballista` |
//! | worker | `Worker`: a Ballista executor that passes leases to a [`LeaseHandler`](crate::handler::LeaseHandler) | `ballista` |
//! | client | [`BallistaEngine`] | `client` |

mod blob_stream;
mod client;
mod client_error;
mod connection;
mod error;
mod fetch;
mod incoming;
mod lock;
mod options;
mod piece;
mod rpc;
mod security;
#[cfg(feature = "ballista")]
mod server;
mod status;
mod task;
mod tls;
mod wire;

pub use client::BallistaEngine;
pub use error::StartError;
pub use options::EngineOptions;
pub use security::Security;
#[cfg(feature = "ballista")]
pub use server::{Scheduler, SchedulerOptions, Worker, WorkerOptions};
pub use status::{ClientStatus, ClusterStatus, WorkerStatus};
pub use tls::TlsSettings;
