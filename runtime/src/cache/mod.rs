//! A content-addressed store of computed rows.
//!
//! The *prefix* of a pipeline is a sub-plan over one scan, whose rows are the stored rows except
//! those that a filter drops. The rows of a prefix are written once and read, row by row in any
//! order, in later epochs and by other processes. Rows are addressed by file and row number, never
//! by their position in an epoch, so the cache does not affect any stream.
//!
//! | module | what it does |
//! |---|---|
//! | `stores` | what a location names |
//! | `store`, `shared`, `files` | a directory or an object store, and the objects in it |
//! | `key`, `key_text` | names of prefixes, files and rows |
//! | `entry`, `known`, `read` | finding and reading rows |
//! | `refresh` | learning what other processes wrote, and which segments are damaged |
//! | `writer`, `segment`, `publish` | collecting rows into immutable segments, and publishing them |
//! | `block`, `size` | record batches as bytes; the bytes of rows |
//! | `layout`, `index` | the addresses of a segment's rows, on disk and in memory |
//! | `manifest`, `exclusive`, `guard` | which segments exist, and who may change them |
//! | `compression`, `bandwidth`, `clock` | measured choices |
//! | `quota` | eviction |
//! | `recent` | recently read blocks |
//! | `admin`, `verify` | administration of a store |
//!
//! The cache needs a Tokio runtime: checksums, compression and file access run on its blocking
//! threads.
//!
//! Everything in a store is untrusted: bytes are decoded only after their checksum matched, and
//! rows that are damaged, cut off or missing count as absent, so that they are computed and written
//! again. Checksums detect damage, not forgery: anybody who can write to the store can change the
//! rows.

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
mod key_text;
mod known;
mod layout;
mod manifest;
mod publish;
mod quota;
mod read;
mod recent;
mod refresh;
mod segment;
mod shared;
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
pub use entry::{Entry, EntryInfo, Location, StoredPlace};
pub use error::CacheError;
pub use key::{CacheKey, FileKey, RowAddress};
pub use read::CachedRows;
pub use shared::CacheOptions;
pub use store::{CacheStore, Counters};
pub use stores::Stores;
pub use verify::{Damage, Verified};
pub use writer::{Writer, WriterState};
