//! The cache: a content-addressed store of computed rows.
//!
//! The *prefix* of a pipeline is a sub-plan over one scan. A prefix gives one row for each row of
//! the scanned files, except for rows that a filter in the prefix drops. The rows of a prefix are
//! written to the store once. Later epochs and other processes can read these rows in any order. A
//! row is addressed by its file and its row number in that file, never by its position in an epoch,
//! so the cache does not change any stream.
//!
//! | module | what it does |
//! |---|---|
//! | `stores` | the store that a location (a path or URL) names |
//! | `store`, `shared`, `files` | a directory or an object store, and its objects |
//! | `key`, `key_text` | names of prefixes, files and rows |
//! | `entry`, `known`, `read` | finding and reading rows |
//! | `refresh` | learning what other processes wrote, and which segments are damaged |
//! | `writer`, `segment`, `publish` | collecting rows into immutable segments, and publishing them |
//! | `block`, `size` | record batches as bytes; the bytes of rows |
//! | `layout`, `index` | tables of row addresses: of a segment in the store, of an entry in memory |
//! | `shard` | the parts of an entry that several writers fill at once |
//! | `manifest`, `exclusive`, `guard` | which segments a shard has, and who may change them |
//! | `mark` | the mark by which processes know that they share a store |
//! | `compression`, `bandwidth`, `clock` | the choice of a compression by measured times and bandwidths |
//! | `quota` | eviction |
//! | `recent` | recently read blocks |
//! | `admin`, `verify` | administration of a store |
//!
//! The cache needs a Tokio runtime, on whose blocking threads checksums, compression and file
//! access run.
//!
//! Everything in a store is untrusted: bytes are decoded only after their checksum matched. Rows
//! that are damaged, truncated or missing count as absent, and are computed and written again.
//! Checksums detect damage, not forgery: anybody who can write to the store can change the rows.

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
mod mark;
mod publish;
mod quota;
mod read;
mod recent;
mod refresh;
mod segment;
mod shard;
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
pub use compression::{Compression, CompressionTrial, choose};
pub use entry::{Entry, EntryInfo, Location, StoredPlace};
pub use error::CacheError;
pub use key::{CacheKey, FileKey, RowAddress};
pub use read::CachedRows;
pub use shared::CacheOptions;
pub use store::{CacheStore, Counters};
pub use stores::Stores;
pub use verify::{Damage, Verified};
pub use writer::{Writer, WriterState};
