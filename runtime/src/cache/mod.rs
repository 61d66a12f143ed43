//! A content-addressed store of computed rows.
//!
//! The rows of a pipeline's *prefix* (a sub-plan over one scan, whose rows are the stored ones but for
//! those that a filter drops) are written once and read, row by row in any order, in later epochs and
//! by other processes. Rows are addressed by file and row number, never by position in an epoch, so
//! the cache shows in no stream.
//!
//! | module | what it does |
//! |---|---|
//! | `stores` | what a location names |
//! | `store`, `files` | a directory or an object store, and the objects in it |
//! | `key` | names of prefixes, files and rows |
//! | `entry`, `known`, `read` | finding and reading rows |
//! | `refresh` | learning what other processes wrote, and of damage |
//! | `writer`, `segment`, `publish` | collecting rows into immutable segments, and publishing them |
//! | `block`, `size` | record batches as bytes; the bytes of rows |
//! | `layout`, `index` | the addresses of a segment's rows, on disk and in memory |
//! | `manifest`, `exclusive`, `guard` | which segments there are, and who may change that |
//! | `compression`, `bandwidth`, `clock` | measured choices |
//! | `quota` | what stays when not all fits |
//! | `recent` | the blocks read last |
//! | `admin`, `verify` | what people ask of a store |
//!
//! All of it needs a Tokio runtime: checksums, compression and files are work for its blocking threads.
//!
//! Everything in a store is untrusted: bytes are decoded only after their checksum matched, and what
//! is damaged, cut off or missing is absent, hence computed and written again. Checksums find
//! damage, not forgery: who can write to the store can change the rows.

mod admin;
mod bandwidth;
mod block;
mod clock;
mod compression;
mod entry;
mod error;
mod exclusive;
mod files;
mod guard;
mod index;
mod key;
mod known;
mod layout;
mod manifest;
mod publish;
mod quota;
mod read;
mod recent;
mod refresh;
mod segment;
mod size;
mod store;
mod stores;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use admin::{SegmentSummary, Summary};
pub use bandwidth::{Bandwidth, Traffic};
pub use compression::{Compression, Trial, choose};
pub use entry::{Entry, EntryInfo, Location, Place};
pub use error::CacheError;
pub use key::{CacheKey, FileKey, RowAddress};
pub use read::CachedRows;
pub use store::{CacheOptions, CacheStore, Counters};
pub use stores::Stores;
pub use verify::{Damage, Verified};
pub use writer::{Writer, WriterState};
