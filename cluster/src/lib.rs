//! Computes segments of a stream on other machines.
//!
//! A *lease* is a request to compute some segments of a job. It is a pure function from a few
//! hundred bytes to rows, so any engine that runs functions and returns bytes can carry leases.
//!
//! | module | contents |
//! |---|---|
//! | [`engine`], [`handler`] | the traits of an engine that carries leases, and of the code that computes them on a worker |
//! | [`in_process`], `ballista` | engines: workers in this process; workers of an Apache DataFusion Ballista cluster (feature `ballista`) |
//! | [`lease`], [`job_spec`] | messages of the client to the workers: segments to compute, and their job |
//! | [`message`], [`failure`] | errors of messages; errors of segments as data |
//! | [`job_handler`], [`jobs`], `compute` | a worker's side: opens jobs, and computes the segments of leases |
//! | [`client`], `rows` | the client's side: has workers compute the segments of a run, and receives their rows |
//! | [`window`] | the client's window of leases, as a state machine |
//! | [`codec`], [`driver`] | encoding of leases; running a window over an engine |
//! | [`error`](mod@error) | errors of a run on a cluster |

#[cfg(feature = "ballista")]
pub mod ballista;
pub mod client;
pub mod codec;
mod compute;
pub mod driver;
pub mod engine;
pub mod error;
pub mod failure;
pub mod handler;
pub mod in_process;
pub mod job_handler;
pub mod job_spec;
pub mod jobs;
pub mod lease;
pub mod message;
mod rows;
pub mod window;

pub use client::{Cluster, ClusterEngine};
pub use window::WindowSettings;
