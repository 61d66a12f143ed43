//! The runtime of Forebay: sources, row keys, windows, segments, batches, the local engine.
//!
//! | module | what it does |
//! |---|---|
//! | [`source`] | files, splits, rows by reference, for each format |
//! | [`snapshot`] | the stored rows of a pipeline and their keys |
//! | [`order`], [`kept`] | windows, the order of rows within them, and rows that pruning left |
//! | [`stage`] | holds or spills the rows of a window |
//! | [`fragment`] | row operators over a segment |
//! | [`window`], [`segment`] | from positions to rows: staging, fetching, computing |
//! | [`job`], [`limit`], [`lookups`] | an opened pipeline; LIMIT resolved to stored rows; right sides of joins |
//! | [`pool`], [`task`] | the threads that compute; tasks, and work begun before its turn |
//! | [`cache`] | computed rows, kept for later epochs and other processes |
//! | [`cached`] | the cached prefix of a plan |
//! | [`group`], [`deal`] | which rows make which batch, and which rank gets it |
//! | [`tail`] | batches, and what becomes of failed rows |
//! | [`letters`] | a table of the rows that failed |
//! | [`cursor`], [`token`] | where a stream stands, and how a run goes on from there |
//! | [`engine`] | the local engine |
//! | [`output_file`] | files that appear whole or not at all |
//! | [`digest`] | one hash of a whole stream |
//! | [`cpu`] | the time that processors worked |

pub mod cache;
pub mod cached;
pub mod cpu;
pub mod cursor;
pub mod deal;
pub mod digest;
pub mod engine;
pub mod error;
pub mod fragment;
pub mod group;
pub mod job;
pub mod kept;
mod keys;
pub mod letters;
pub mod limit;
pub mod lookups;
pub mod order;
mod origin;
pub mod output_file;
pub mod pool;
pub mod segment;
pub mod snapshot;
pub mod source;
pub mod stage;
pub mod tail;
pub mod task;
pub mod token;
pub mod window;
