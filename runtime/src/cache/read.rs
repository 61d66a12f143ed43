//! Reads rows of an entry in any order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use bytes::Bytes;
use futures::StreamExt;

use super::block::{decode, guarded};
use super::entry::{Entry, Location};
use super::error::CacheError;
use super::files::Unreadable;
use super::key::checksum_of;
use super::known::KnownSegment;
use super::size::{compact, row_bytes};
use crate::task;

/// Target size in bytes of a request to the store. Many small blocks are read by one request, a
/// large block by its own.
const REQUEST_BYTES: u64 = 4 << 20;

/// Maximum number of concurrent requests to the store for one call of [`Entry::read`].
const REQUESTS: usize = 4;

/// The result of reading rows of a cache entry.
#[derive(Debug)]
pub struct CachedRows {
    /// The rows that could be read, in the requested order.
    pub batch: RecordBatch,
    /// Indices into the requested locations, ascending, of the rows that could not be read: damaged
    /// rows, and rows that were evicted after [`Entry::find`] had found them. The caller has to
    /// compute these rows.
    pub missing: Vec<usize>,
}

/// Requested rows of one block, each as (row number in the block, index into the requested
/// locations).
type WantedBlocks = Vec<(u32, usize)>;

/// Blocks of a segment that are read together.
struct Request {
    segment: Arc<KnownSegment>,
    blocks: Vec<(usize, WantedBlocks)>,
}

/// Rows of a block, with their indices into the requested locations.
struct Piece {
    rows: RecordBatch,
    places: WantedBlocks,
}

impl Entry {
    /// Reads the rows at `locations`, in that order. Each block that is read is checked against its
    /// checksum. Besides the returned rows, only a few blocks are in memory at a time.
    ///
    /// # Errors
    /// A location is [`Location::Dropped`], or one record batch cannot hold all the rows. Rows that
    /// cannot be read are not an error; `missing` lists these rows.
    pub async fn read(&self, locations: &[Location]) -> Result<CachedRows, CacheError> {
        let mut pieces = Vec::new();
        let mut failed = false;
        let mut requests = futures::stream::iter(self.requests(locations)?)
            .map(|request| self.serve(request))
            .buffer_unordered(REQUESTS);
        while let Some((got, sound)) = requests.next().await {
            pieces.extend(got);
            failed |= !sound;
        }
        drop(requests);
        if failed {
            self.repair().await;
        }
        self.touch().await;
        let schema = Arc::clone(self.schema());
        let asked = locations.len();
        blocking(move || assemble(&schema, asked, &pieces))
            .await?
            .map_err(|cause| CacheError::Rows {
                action: "read",
                cause,
            })
    }

    /// Groups the blocks that hold the rows at `locations` into requests to the store.
    fn requests(&self, locations: &[Location]) -> Result<Vec<Request>, CacheError> {
        let mut wanted: BTreeMap<(u32, usize), WantedBlocks> = BTreeMap::new();
        let mut segments: BTreeMap<u32, Option<Arc<KnownSegment>>> = BTreeMap::new();
        for (at, location) in locations.iter().enumerate() {
            let Location::Stored(place) = location else {
                return Err(CacheError::Invariant(
                    "a row that the filter dropped was requested".to_owned(),
                ));
            };
            let segment = segments
                .entry(place.slot)
                .or_insert_with(|| self.segment(place.slot));
            let Some(segment) = segment else { continue };
            let after = segment.blocks.partition_point(|b| b.first_row <= place.row);
            let block = after
                .checked_sub(1)
                .and_then(|b| Some((b, segment.blocks.get(b)?)));
            if let Some((number, block)) = block {
                let rows = wanted.entry((place.slot, number)).or_default();
                rows.push((place.row - block.first_row, at));
            }
        }
        let mut requests: Vec<Request> = Vec::new();
        let mut bytes = 0;
        for ((slot, number), rows) in wanted {
            let Some(Some(segment)) = segments.get(&slot) else {
                continue;
            };
            let size = segment.blocks.get(number).map_or(0, |b| u64::from(b.bytes));
            bytes += size;
            match requests.last_mut() {
                Some(last) if Arc::ptr_eq(&last.segment, segment) && bytes <= REQUEST_BYTES => {
                    last.blocks.push((number, rows));
                }
                _ => {
                    bytes = size;
                    requests.push(Request {
                        segment: Arc::clone(segment),
                        blocks: vec![(number, rows)],
                    });
                }
            }
        }
        Ok(requests)
    }

    /// Reads the rows of a request. The returned flag is true when all these rows could be read.
    async fn serve(&self, request: Request) -> (Vec<Piece>, bool) {
        let Request { segment, blocks } = request;
        let recent = &self.inner.shared.recent;
        let mut pieces = Vec::new();
        let mut unread = Vec::new();
        for (number, wanted) in blocks {
            match recent.get(&(Arc::clone(&segment.name), number)) {
                Some(batch) => pieces.push((batch, wanted)),
                None => unread.push((number, wanted)),
            }
        }
        let ranges: Vec<Range<u64>> = unread
            .iter()
            .filter_map(|(number, _)| segment.blocks.get(*number))
            .map(|block| block.start..block.start + u64::from(block.bytes))
            .collect();
        let files = &self.inner.shared.files;
        let parts = if ranges.is_empty() {
            Ok(Vec::new())
        } else {
            files.ranges(&segment.path, segment.bytes, &ranges).await
        };
        let (parts, mut sound) = match parts {
            Ok(parts) => (parts, true),
            Err(Unreadable::Damaged(cause)) => {
                self.lose(segment.shard, &segment.name, &cause).await;
                (Vec::new(), false)
            }
            Err(Unreadable::Failed(error)) => {
                log::warn!("{error}: the rows in this segment are computed again");
                (Vec::new(), false)
            }
        };
        let entry = self.clone();
        let unread = unread.into_iter().zip(parts).collect::<Vec<_>>();
        let work = blocking(move || {
            let mut sound = true;
            for ((number, wanted), bytes) in unread {
                match entry.decode(&segment, number, bytes) {
                    Ok(batch) => pieces.push((batch, wanted)),
                    Err(cause) => {
                        entry.condemn(segment.shard, &segment.name, &cause);
                        sound = false;
                    }
                }
            }
            let pieces = pieces
                .into_iter()
                .map(|(batch, wanted)| narrow(batch, wanted));
            (pieces.collect::<Result<Vec<_>, _>>(), sound)
        });
        match work.await {
            Ok((Ok(pieces), all)) => {
                sound &= all;
                (pieces, sound)
            }
            Ok((Err(error), _)) => {
                log::warn!(
                    "cached rows cannot be copied from their block ({error}): these rows are computed again"
                );
                (Vec::new(), false)
            }
            Err(error) => {
                log::warn!("{error}");
                (Vec::new(), false)
            }
        }
    }

    /// Checks the checksum of block `number` of `segment`, and decodes `bytes`, which are that
    /// block.
    fn decode(
        &self,
        segment: &KnownSegment,
        number: usize,
        bytes: Bytes,
    ) -> Result<RecordBatch, String> {
        let block = segment
            .blocks
            .get(number)
            .ok_or("the segment has no such block")?;
        if checksum_of(&bytes) != block.checksum {
            return Err(format!("the checksum of block {number} does not match"));
        }
        let stored = bytes.len();
        // An object store may return a slice of a buffer of several blocks. Without a copy, the
        // whole buffer would stay in memory for one block.
        let bytes = match self.inner.shared.files.directory {
            Some(_) => bytes,
            None => Bytes::copy_from_slice(&bytes),
        };
        let batch = decode(&self.inner.schema_message, bytes, block.rows)
            .map_err(|cause| format!("block {number} cannot be decoded: {cause}"))?;
        // All batches of an entry share one schema object.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::clone(self.schema());
        let batch = RecordBatch::try_new_with_options(schema, batch.columns().to_vec(), &options)
            .map_err(|error| error.to_string())?;
        let memory = row_bytes(&batch).iter().sum::<u64>().max(stored as u64);
        let id = (Arc::clone(&segment.name), number);
        self.inner.shared.recent.keep(id, &batch, memory as usize);
        Ok(batch)
    }
}

/// Copies the wanted rows out of a block, so that the memory of the block can be freed. If at least
/// half of the block's rows are wanted, returns the whole block instead.
fn narrow(batch: RecordBatch, mut wanted: WantedBlocks) -> Result<Piece, String> {
    let rows = if wanted.len() * 2 < batch.num_rows() && batch.num_columns() > 0 {
        let indices = UInt32Array::from_iter_values(wanted.iter().map(|(row, _)| *row));
        for (new, (row, _)) in wanted.iter_mut().enumerate() {
            *row = new as u32;
        }
        guarded(|| compact(&take_record_batch(&batch, &indices)?))?
    } else {
        batch
    };
    Ok(Piece {
        rows,
        places: wanted,
    })
}

/// Puts the rows in `pieces` into the requested order. `asked` is the number of requested rows.
fn assemble(schema: &SchemaRef, asked: usize, pieces: &[Piece]) -> Result<CachedRows, String> {
    let mut found = vec![None; asked];
    for (number, piece) in pieces.iter().enumerate() {
        for (row, at) in &piece.places {
            if let Some(found) = found.get_mut(*at) {
                *found = Some((number, *row as usize));
            }
        }
    }
    let missing = (0..asked).filter(|&at| found[at].is_none()).collect();
    let places: Vec<(usize, usize)> = found.into_iter().flatten().collect();
    let batch = guarded(|| gather(schema, pieces, &places))?;
    Ok(CachedRows { batch, missing })
}

fn gather(
    schema: &SchemaRef,
    pieces: &[Piece],
    places: &[(usize, usize)],
) -> Result<RecordBatch, ArrowError> {
    if schema.fields().is_empty() || places.is_empty() {
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        let empty = RecordBatch::new_empty(Arc::clone(schema));
        return RecordBatch::try_new_with_options(
            Arc::clone(schema),
            empty.columns().to_vec(),
            &options,
        );
    }
    let batches: Vec<&RecordBatch> = pieces.iter().map(|piece| &piece.rows).collect();
    compact(&interleave_record_batch(&batches, places)?)
}

/// Runs `work` on one of the runtime's threads for blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CacheError> {
    task::blocking("work of the cache", work)
        .await
        .map_err(|error| CacheError::Invariant(error.strip_backtrace()))
}
