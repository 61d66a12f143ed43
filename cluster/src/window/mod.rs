//! The client's window of leases: a state machine without sockets, threads or a clock.
//!
//! The window cuts consecutive segments of a stream into leases, asks its host to submit them,
//! and delivers the result of each segment once, in stream order. The host calls
//! [`LeaseWindow::handle`] with each [`WindowEvent`] and its time, and then does what
//! [`LeaseWindow::next_action`] returns until there is no action left.
//!
//! # Sizes
//!
//! The first lease is the first segment alone, and each lease may be twice as large as the largest
//! before it, until leases have 16 MB of estimated output, 50 ms of estimated work or 4096 segments.
//! Estimates are corrected by the measured sizes and times of the last ten or so leases of the run.
//! A lease ends where the affinity key changes, unless the lease is less than a quarter full. The
//! number of workers decides only how many leases are in flight.
//!
//! # Memory
//!
//! The bytes in use are the reservations of leases without results (twice if a lease runs
//! twice), and the sizes of results that the host has not consumed. A reservation is kept while a
//! lease waits to be issued again, and each segment counts 256 bytes for its bookkeeping. A lease
//! behind the head is submitted only if the bytes in use stay within
//! `limit = max_bytes - headroom` ([`WindowSettings::limit`], [`WindowSettings::headroom`]).
//! Leases are submitted for the first time in stream order, so the lease at the head always has
//! its reservation, and full buffers cannot stop it. At any moment
//!
//! ```text
//! bytes in use <= max(limit, alone) + second + excess
//! ```
//!
//! * `alone`: reservation of the last lease that was submitted into an empty window, which is
//!   always allowed. Above `headroom` only if it is a single segment.
//! * `second`: reservation of the one lease that runs twice, or 0. It is the lease at the head.
//! * `excess`: bytes by which results that are not consumed exceed their reservations.
//!
//! No lease of several segments is larger than `headroom`, so the bytes in use stay within
//! `max_bytes + excess` as long as no single segment is estimated above `headroom`.
//!
//! # Failures
//!
//! | an attempt ends with | the window |
//! |---|---|
//! | a lost worker | issues the lease again at once, after the fourth failure with delays up to 1 s; after three workers it splits the lease |
//! | an unfit worker | issues the lease again without that worker, which is set aside if another one succeeds; after three workers, or a minute without any other worker, the run ends |
//! | an unavailable scheduler | submits everything again, with delays up to 1 s; after ten minutes the run ends |
//! | a refusal | ends the run at once |
//! | nothing, for too long | issues the lease a second time if it is at the head; each further attempt waits twice as long and replaces the oldest |
//!
//! A lease that three workers were lost with is split into parts of √n of its n rows, and a lost
//! part into single rows. These suspects run one at a time, without new leases beside them. A row
//! is to blame if its losses are very unlikely by the rate at which other leases lose workers, and
//! if the list of workers lacks the lost ones. In a quiet cluster that takes six workers.
//!
//! An error that belongs to a segment ends the run when all segments before it are delivered, so
//! that the consumer sees the same prefix each time.

mod attempts;
mod budget;
mod hedge;
mod lease;
mod machine;
mod message;
mod mortality;
mod outage;
mod pace;
mod poison;
mod queue;
mod segment;
mod settings;
mod slots;
mod status;
#[cfg(test)]
mod tests;
mod unfit;
mod workers;

pub use machine::LeaseWindow;
pub use message::{AttemptId, LeaseId, WindowAction, WindowEvent};
pub(crate) use outage::backoff;
pub use segment::{ByteSize, LeaseSegment, PieceId, SegmentInfo, SegmentPiece, StagedData};
pub use settings::WindowSettings;
pub use status::{WindowCounts, WindowStatus};
