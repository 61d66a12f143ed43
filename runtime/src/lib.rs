//! The runtime of Forebay: sources, row keys, windows, segments, batches, the local engine.
//!
//! The modules, from the bottom up. No two files import each other (`.ci/circles` checks it):
//!
//! | module | contents |
//! |---|---|
//! | [`pool`], `memory`, `channel`, `prefetch`, [`task`] | compute threads, memory for windows, bounded channels, work that runs ahead, tasks |
//! | [`output_file`], [`cpu`], [`record_batch`] | files written atomically; CPU time; batches without columns, sizes of rows |
//! | [`objects`] | object stores and web servers: listings, bounded reads |
//! | [`source`] | files, splits, rows by reference, for each format |
//! | `order` | without I/O: the stored rows of a pipeline, windows, the order of rows within windows |
//! | [`stream`] | without I/O: the batch, rank and step of each row; cursors, tokens, digests |
//! | `stage`, [`cache`] | rows of a window, in memory or spilled; computed rows, stored for later epochs and other processes |
//! | [`fragment`] | row operators over a segment |
//! | `segment` | rows of one or more windows, read and computed together |
//! | `job` | an opened pipeline: its data, fragments, lookups, row counts, threads and memory |
//! | [`tail`], [`dead_letters`] | assembly of batches and settling of failed rows; a table of the failed rows |
//! | [`run`] | the local engine: one run of a job from a cursor |

pub mod cache;
mod channel;
pub mod cpu;
pub mod dead_letters;
pub mod error;
pub mod fragment;
mod group_key;
mod job;
mod memory;
pub mod objects;
mod order;
pub mod output_file;
pub mod pool;
mod prefetch;
mod process_wide;
pub mod record_batch;
pub mod run;
mod segment;
pub mod source;
mod stage;
pub mod stream;
pub mod tail;
pub mod task;
