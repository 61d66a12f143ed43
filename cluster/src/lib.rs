//! Computes segments of a stream on other machines.
//!
//! A *lease* is a request to compute some segments of a job. It is a pure function from a few
//! hundred bytes to rows, so any engine that runs functions and returns bytes can carry leases.
//!
//! | module | contents |
//! |---|---|
//! | `ballista` | the engine that carries leases over Apache DataFusion Ballista (feature `ballista`) |
//! | [`engine`] | the trait of an engine that carries leases |
//! | [`lease`], [`job_spec`] | messages of the client to the workers: segments to compute, and their job |
//! | [`failure`], [`message`] | errors of segments as data; errors of messages |

#[cfg(feature = "ballista")]
pub mod ballista;
pub mod engine;
pub mod failure;
pub mod job_spec;
pub mod lease;
pub mod message;
