//! Computes segments of a stream on other machines.
//!
//! A *lease* is a request to compute some segments of a job. It is a pure function from a few
//! hundred bytes to rows, so any engine that runs functions and returns bytes can carry leases.
//!
//! | module | contents |
//! |---|---|
//! | [`codec`] | the encoding of leases |
//! | [`driver`] | runs a window of leases over an engine |
//! | [`engine`] | the trait of an engine that carries leases |
//! | [`error`] | the errors of a run on a cluster |
//! | [`window`] | the client's window of leases, as a state machine |

pub mod codec;
pub mod driver;
pub mod engine;
pub mod error;
pub mod window;
