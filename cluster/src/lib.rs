//! Computes segments of a stream on other machines.
//!
//! A *lease* is a request to compute some segments of a job. It is a pure function from a few
//! hundred bytes to rows, so any engine that runs functions and returns bytes can carry leases.
//!
//! | module | contents |
//! |---|---|
//! | [`engine`], [`handler`] | the traits of an engine that carries leases, and of the code that computes them on a worker |
//! | [`in_process`], `ballista` | engines: workers in this process; workers of an Apache DataFusion Ballista cluster (feature `client`; its scheduler and workers are in the feature `ballista`) |
//! | [`lease`], [`job_spec`], [`host_functions`] | messages of the client to the workers: segments to compute, their job, and the functions that it calls |
//! | [`request`], [`source_request`], [`cache_request`] | requests to workers: leases, and requests about sources and caches |
//! | [`message`], [`failure`] | errors of messages; errors of segments as data |
//! | [`job_handler`], [`jobs`], `compute` | a worker's side: opens jobs, and computes the segments of leases |
//! | `sources`, `source_handler` | a worker's side: opens sources, and reads their rows for clients |
//! | `cache_handler` | a worker's side: opens the stores of caches |
//! | [`client`], [`job_codec`], `job_leases`, `rows`, `work` | the client's side: has workers compute the segments of a run, and receives their rows and what is known of their work |
//! | [`resolver`], `remote_source`, `remote_rows`, `location`, `call` | the client's side: has workers open and read the sources of a plan |
//! | [`cluster_cache`], `run_cache`, `direct` | the client's side: has workers share a cache |
//! | [`placement`] | which waiting leases run next, and on which worker |
//! | [`window`] | the client's window of leases, as a state machine |
//! | [`codec`], [`driver`] | encoding of leases; running a window over an engine |
//! | [`error`](mod@error) | errors of a run on a cluster |

#[cfg(feature = "client")]
pub mod ballista;
mod cache_handler;
pub mod cache_request;
mod call;
pub mod client;
pub mod cluster_cache;
pub mod codec;
mod compute;
mod direct;
pub mod driver;
pub mod engine;
pub mod error;
pub mod failure;
pub mod handler;
pub mod host_functions;
pub mod in_process;
pub mod job_codec;
pub mod job_handler;
mod job_leases;
pub mod job_spec;
pub mod jobs;
mod joined_batches;
pub mod lease;
mod location;
pub mod message;
pub mod placement;
mod remote_rows;
mod remote_source;
pub mod request;
pub mod resolver;
mod rows;
mod run_cache;
mod source_handler;
pub mod source_request;
mod sources;
pub mod window;
mod work;

pub use client::{Cluster, ClusterEngine};
pub use resolver::ClusterResolver;
pub use window::WindowSettings;
