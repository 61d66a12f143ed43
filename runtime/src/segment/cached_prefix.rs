//! The cached prefix of a plan: its rows are read from the store, or computed and stored.
//!
//! The plan above the cache point does not know of the cache: it takes the segment's rows from a
//! leaf, whether they were read from the store or computed. Failed rows are never stored, so their
//! errors surface in every epoch. If the store fails, rows are computed as if the store were empty.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::interleave;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use forebay_planner::rows::canonical::rows_text;
use forebay_planner::rows::{RowOp, RowPlan};
use tokio::sync::{Mutex, watch};

use super::data::StoredData;
use crate::cache::{
    CacheKey, CacheStore, CachedRows, Entry, EntryInfo, FileKey, Location, RowAddress, Writer,
};
use crate::fragment::Fragment;
use crate::fragment::row_batch::RowBatch;
use crate::order::{RowLocation, Snapshot};

/// Version of the stored rows. It is raised when the rows of an unchanged prefix are to be stored
/// differently, so that older ones are not found.
const VERSION: u32 = 1;

/// The store for the rows of a cache point, and its expected use.
#[derive(Debug, Clone)]
pub(crate) struct CacheSetup {
    /// The store; `None` if the store could not be opened, but frozen draws still need a setup.
    pub store: Option<CacheStore>,
    /// Cost of computing a row, in picoseconds.
    pub compute_ps_per_row: u64,
    /// Expected number of times that each row is read.
    pub reads: u32,
    /// The pass whose draws all epochs use, if draws are frozen.
    pub frozen: Option<u64>,
}

/// Returns the cache key of a prefix with this canonical text. `frozen` is the pass whose draws the
/// prefix always uses, if it does.
pub(crate) fn key_of(text: &str, frozen: Option<u64>) -> CacheKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("forebay cached rows {VERSION}\n{text}").as_bytes());
    hasher.update(format!("pass {frozen:?}\n").as_bytes());
    CacheKey::new(*hasher.finalize().as_bytes())
}

/// A plan cut at its cache point into the cached prefix and the plan that reads it.
#[derive(Debug)]
pub(crate) struct Cut {
    /// The cached prefix.
    pub prefix: RowPlan,
    /// The plan above the cache point; the cache point is a leaf in it.
    pub above: RowPlan,
}

/// Cuts a plan at its cache point; `None` if it has none.
pub(crate) fn cut(plan: &RowPlan) -> Result<Option<Cut>> {
    let mut prefix = None;
    let above = plan.clone().rewrite(&mut |mut node| {
        if matches!(node.op, RowOp::Cache) {
            prefix = node.inputs.pop();
        }
        Ok(node)
    })?;
    Ok(prefix.map(|prefix| Cut { prefix, above }))
}

/// The cached prefix of an opened plan.
#[derive(Debug)]
pub(crate) struct CachedPrefix {
    /// Fragment that computes the rows that are not stored.
    pub fragment: Fragment,
    /// For each scan of the snapshot, true if the prefix reads it.
    scans: Vec<bool>,
    /// Key of each file of the snapshot.
    files: Vec<FileKey>,
    /// Schema of the stored columns.
    schema: SchemaRef,
    /// For each stored column, the index of the prefix's column.
    order: Vec<usize>,
    frozen: Option<u64>,
    kept: Option<Kept>,
    writing: Mutex<Writing>,
    begun: watch::Sender<Begun>,
    counts: Counts,
}

/// The store, and its entry that holds the rows of the prefix.
#[derive(Debug)]
struct Kept {
    store: CacheStore,
    entry: Entry,
}

#[derive(Debug)]
enum Writing {
    /// No row was written yet.
    NotYet,
    /// This process holds the entry's writer.
    Open(Box<Writer>),
    /// This process does not write any more: another process writes, or the store failed.
    Left,
}

/// The progress of the run over its epochs.
#[derive(Debug, Default)]
struct Begun {
    /// The latest epoch that has begun.
    epoch: Option<u64>,
    /// Number of rows computed before this epoch began.
    computed: u64,
    /// True if the previous epoch computed no row, so that nothing was left to write.
    settled: bool,
}

#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    computed: AtomicU64,
}

/// The rows that a segment needs of the prefix: those read from the store, and those to be
/// computed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Found {
    /// Rows that were read from the store, and their locations.
    stored: Option<(RecordBatch, Vec<RowLocation>)>,
    /// Locations of the rows that have to be computed.
    pub missing: Vec<RowLocation>,
}

impl Found {
    /// Iterates over the positions of all rows, read or missing.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u64> {
        let stored = self.stored.iter().flat_map(|(_, places)| places);
        stored.chain(&self.missing).map(|place| place.position)
    }

    /// Takes out the rows before `position`.
    pub(crate) fn take_before(&mut self, position: u64) -> Self {
        let count =
            |places: &[RowLocation]| places.partition_point(|place| place.position < position);
        let rest = self.missing.split_off(count(&self.missing));
        let missing = std::mem::replace(&mut self.missing, rest);
        let stored = self.stored.take().map(|(rows, mut places)| {
            let before = count(&places);
            let rest = places.split_off(before);
            if !rest.is_empty() {
                self.stored = Some((rows.slice(before, rest.len()), rest));
            }
            (rows.slice(0, before), places)
        });
        let stored = stored.filter(|(_, places)| !places.is_empty());
        Self { stored, missing }
    }
}

/// Newly computed rows, to be stored.
#[derive(Debug)]
pub(crate) struct Fresh {
    addresses: Vec<RowAddress>,
    rows: RecordBatch,
    dropped: Vec<RowAddress>,
}

impl CachedPrefix {
    /// Opens the cache entry of a prefix. If the store fails, a warning is logged and the result is `None`, unless
    /// the prefix has frozen draws, which affect its rows even without a store.
    pub(crate) async fn open(
        setup: &CacheSetup,
        prefix: &RowPlan,
        data: &StoredData,
    ) -> Result<Option<Self>> {
        let (text, order) = rows_text(prefix)?;
        let frozen = setup.frozen.filter(|_| draws(prefix));
        let key = key_of(&text, frozen);
        let fields = order.iter().enumerate().map(|(number, &column)| {
            let field = prefix.schema.field(column).clone();
            field.with_name(format!("c{number}")).with_nullable(true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut info = EntryInfo::new(
            prefix.to_string().trim_end(),
            Arc::clone(&schema),
            setup.compute_ps_per_row,
        );
        info.expected_reads = setup.reads;
        let kept = match &setup.store {
            Some(store) => match store.entry(key, info).await {
                Ok(entry) => Some(Kept {
                    store: store.clone(),
                    entry,
                }),
                Err(error) => {
                    log::warn!("{error}; rows are computed without a cache");
                    None
                }
            },
            None => None,
        };
        if kept.is_none() && frozen.is_none() {
            return Ok(None);
        }
        let mut occurrences = Vec::new();
        prefix.visit(&mut |node| {
            if let RowOp::Scan { occurrence, .. } = &node.op {
                occurrences.push(*occurrence);
            }
        });
        let scans = data.snapshot.scans.iter();
        Ok(Some(Self {
            fragment: Fragment::try_new(prefix, Vec::new())?,
            scans: scans.map(|s| occurrences.contains(&s.occurrence)).collect(),
            // If a source is scanned twice, the prefix may compute different rows of each scan.
            files: data.file_keys(|scan| {
                let nth = occurrences.iter().position(|&o| o == scan.occurrence);
                format!("{nth:?}")
            }),
            schema,
            order,
            frozen,
            kept,
            writing: Mutex::new(Writing::NotYet),
            begun: watch::Sender::default(),
            counts: Counts::default(),
        }))
    }

    /// Returns true if a scan of the snapshot is part of the prefix.
    pub(crate) fn holds(&self, scan: usize) -> bool {
        self.scans.get(scan).copied().unwrap_or(false)
    }

    /// Returns the pass whose draws the prefix uses in `pass`.
    pub(crate) fn pass(&self, pass: u64) -> u64 {
        self.frozen.unwrap_or(pass)
    }

    /// Returns how many rows were read from the store, and how many were computed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.counts.read), count(&self.counts.computed))
    }

    fn address(&self, snapshot: &Snapshot, place: &RowLocation) -> RowAddress {
        let split = &snapshot.splits[place.split as usize];
        RowAddress {
            file: self.files[split.file as usize],
            row: split.first_row + u64::from(place.offset),
        }
    }

    /// Returns true if the store knows every row of a split (stored or dropped), so that the split
    /// need not be read.
    pub(crate) fn knows(&self, snapshot: &Snapshot, split: u32) -> bool {
        let SnapshotSplitRows { file, first, rows } = split_rows(snapshot, split);
        let file = self.files[file as usize];
        // The rows are looked up in chunks, because a split may have millions.
        let mut from = first;
        while from < first + rows {
            let to = (from + 4096).min(first + rows);
            let addresses: Vec<RowAddress> =
                (from..to).map(|row| RowAddress { file, row }).collect();
            if self.locations(&addresses).iter().any(Option::is_none) {
                return false;
            }
            from = to;
        }
        true
    }

    /// Looks up rows in the store; `None` for rows that have to be computed.
    fn locations(&self, addresses: &[RowAddress]) -> Vec<Option<Location>> {
        match &self.kept {
            Some(kept) => kept.entry.find(addresses),
            None => vec![None; addresses.len()],
        }
    }

    /// Reads the rows at `places` from the store, as far as they are stored.
    pub(crate) async fn find(&self, snapshot: &Snapshot, places: Vec<RowLocation>) -> Found {
        let addresses: Vec<RowAddress> = places.iter().map(|p| self.address(snapshot, p)).collect();
        let (mut wanted, mut locations, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for (place, location) in places.into_iter().zip(self.locations(&addresses)) {
            match location {
                Some(stored @ Location::Stored(_)) => {
                    wanted.push(place);
                    locations.push(stored);
                }
                Some(Location::Dropped) => {}
                None => missing.push(place),
            }
        }
        let read = match &self.kept {
            Some(kept) if !wanted.is_empty() => Some(kept.entry.read(&locations).await),
            _ => None,
        };
        let stored = match read {
            None => None,
            Some(Ok(CachedRows {
                batch,
                missing: lost,
            })) => {
                let mut lost = lost.into_iter().peekable();
                let mut read = Vec::with_capacity(wanted.len());
                for (at, place) in wanted.into_iter().enumerate() {
                    match lost.next_if_eq(&at) {
                        Some(_) => missing.push(place),
                        None => read.push(place),
                    }
                }
                (!read.is_empty()).then_some((batch, read))
            }
            Some(Err(error)) => {
                log::warn!("{error}; the rows are computed");
                missing.extend(wanted);
                None
            }
        };
        missing.sort_unstable_by_key(|place| place.position);
        let read = stored.as_ref().map_or(0, |(_, places)| places.len());
        self.counts.read.fetch_add(read as u64, Ordering::Relaxed);
        let computed = missing.len() as u64;
        self.counts.computed.fetch_add(computed, Ordering::Relaxed);
        Found { stored, missing }
    }

    /// Joins the rows of a segment in ascending position: the rows read from the store, and
    /// `computed`, the rows that were missing. Also returns the computed rows that are to be
    /// stored.
    pub(crate) fn join(
        &self,
        snapshot: &Snapshot,
        found: &Found,
        computed: RowBatch,
    ) -> Result<(RowBatch, Option<Fresh>)> {
        let fresh = if found.missing.is_empty() {
            None
        } else {
            Some(self.fresh(snapshot, &found.missing, &computed)?)
        };
        let computed = match self.frozen {
            None => computed,
            Some(_) => with_passes(computed, &found.missing)?,
        };
        let Some((batch, places)) = &found.stored else {
            return Ok((computed, fresh));
        };
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.order.len()];
        for (stored, &column) in batch.columns().iter().zip(&self.order) {
            columns[column] = Some(Arc::clone(stored));
        }
        let read = RowBatch {
            columns: columns.into_iter().flatten().collect(),
            rows: snapshot.row_ids(places).to_array()?,
            errors: Default::default(),
        };
        if computed.is_empty() {
            return Ok((read, fresh));
        }
        Ok((merge(&read, &computed)?, fresh))
    }

    /// Selects what is to be stored: computed rows without errors, and the keys of rows that the prefix dropped.
    fn fresh(
        &self,
        snapshot: &Snapshot,
        missing: &[RowLocation],
        computed: &RowBatch,
    ) -> Result<Fresh> {
        let ids = computed.row_ids()?;
        let positions = ids.position.values();
        let (mut sound, mut addresses) = (Vec::new(), Vec::new());
        let mut known = HashSet::new();
        for row in (0..computed.len()).filter(|row| !computed.errors.contains_key(row)) {
            let place = at_position(missing, positions[row])?;
            let address = self.address(snapshot, place);
            // A segment may hold a row twice if batches cross the ends of passes.
            if known.insert(address) {
                sound.push(row as u64);
                addresses.push(address);
            }
        }
        let mut seen = positions.to_vec();
        seen.sort_unstable();
        let dropped = missing
            .iter()
            .filter(|place| seen.binary_search(&place.position).is_err());
        let dropped = dropped.map(|place| self.address(snapshot, place)).collect();
        let kept = if sound.len() == computed.len() {
            computed.clone()
        } else {
            computed.take(&UInt64Array::from(sound))?
        };
        let columns = self.order.iter().map(|&c| Arc::clone(&kept.columns[c]));
        let options = RecordBatchOptions::new().with_row_count(Some(kept.len()));
        let rows = RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns.collect(),
            &options,
        )?;
        Ok(Fresh {
            addresses,
            rows,
            dropped,
        })
    }

    /// Records in the store that the prefix drops the rows of a split that are not in `kept`.
    pub(crate) async fn note_dropped(&self, snapshot: &Snapshot, split: u32, kept: &[u32]) {
        let SnapshotSplitRows { file, first, rows } = split_rows(snapshot, split);
        let file = self.files[file as usize];
        let dropped = (0..rows).filter(|&offset| kept.binary_search(&(offset as u32)).is_err());
        let dropped = dropped.map(|offset| RowAddress {
            file,
            row: first + offset,
        });
        self.store(Fresh {
            addresses: Vec::new(),
            rows: RecordBatch::new_empty(Arc::clone(&self.schema)),
            dropped: dropped.collect(),
        })
        .await;
    }

    /// Stores rows, unless another process writes or the store failed.
    pub(crate) async fn store(&self, fresh: Fresh) {
        let mut writing = self.writing.lock().await;
        let Some(Kept { entry, .. }) = &self.kept else {
            return;
        };
        if let Writing::NotYet = &*writing {
            *writing = match entry.writer().await {
                Ok(Some(writer)) => Writing::Open(Box::new(writer)),
                Ok(None) => Writing::Left,
                Err(error) => {
                    log::warn!("{error}; nothing is cached");
                    Writing::Left
                }
            };
        }
        let Writing::Open(writer) = &mut *writing else {
            return;
        };
        let Fresh {
            addresses,
            rows,
            dropped,
        } = fresh;
        if let Err(error) = writer.append(&addresses, &rows, &dropped).await {
            log::warn!("{error}; nothing more is cached");
            *writing = Writing::Left;
        }
    }

    /// Writes the rows that earlier epochs left in memory, and learns which rows other processes
    /// have written.
    pub(crate) async fn begin_epoch(&self, epoch: u64) {
        let mut writing = self.writing.lock().await;
        let done = match (&mut *writing, &self.kept) {
            (Writing::Open(writer), _) => writer.flush().await,
            (_, Some(kept)) => kept.entry.refresh().await,
            (_, None) => Ok(()),
        };
        if let Err(error) = done {
            log::warn!("{error}; nothing more is cached");
            *writing = Writing::Left;
        }
        drop(writing);
        let (_, computed) = self.counts();
        self.begun.send_modify(|begun| {
            begun.settled = begun.epoch.is_some() && begun.computed == computed;
            begun.epoch = Some(epoch);
            begun.computed = computed;
        });
    }

    /// Waits until `epoch` has begun, unless the previous epoch left no rows to write.
    pub(crate) async fn epoch_begun(&self, epoch: u64) {
        let mut begun = self.begun.subscribe();
        if self.kept.is_none() || matches!(*self.writing.lock().await, Writing::Left) {
            return;
        }
        let reached = begun.wait_for(|begun| begun.settled || begun.epoch >= Some(epoch));
        // The sender lives as long as `self`.
        drop(reached.await);
    }

    /// Writes the rows held in memory, and lets other processes write the entry.
    pub(crate) async fn finish(&self) {
        let writing = std::mem::replace(&mut *self.writing.lock().await, Writing::Left);
        let done = match (writing, &self.kept) {
            (Writing::Open(writer), _) => writer.finish().await,
            (_, Some(kept)) => kept.store.save_bandwidth().await,
            (_, None) => Ok(()),
        };
        if let Err(error) = done {
            log::warn!("{error}");
        }
    }
}

struct SnapshotSplitRows {
    file: u32,
    first: u64,
    rows: u64,
}

fn split_rows(snapshot: &Snapshot, split: u32) -> SnapshotSplitRows {
    let split = &snapshot.splits[split as usize];
    SnapshotSplitRows {
        file: split.file,
        first: split.first_row,
        rows: split.rows,
    }
}

/// Returns true if a plan makes random draws.
fn draws(plan: &RowPlan) -> bool {
    let mut draws = false;
    plan.visit(&mut |node| {
        draws |= node
            .op
            .exprs()
            .into_iter()
            .any(forebay_planner::rows::draws);
    });
    draws
}

/// Replaces the pass of each row by the pass of its location in `places`, which is sorted by
/// position.
fn with_passes(batch: RowBatch, places: &[RowLocation]) -> Result<RowBatch> {
    let mut ids = batch.row_ids()?;
    let mut passes = Vec::with_capacity(batch.len());
    for &position in ids.position.values() {
        passes.push(at_position(places, position)?.pass);
    }
    ids.pass = UInt64Array::from(passes);
    Ok(RowBatch {
        rows: ids.to_array()?,
        ..batch
    })
}

/// Returns the location with this position. `places` is sorted by position.
fn at_position(places: &[RowLocation], position: u64) -> Result<&RowLocation> {
    match places.binary_search_by_key(&position, |place| place.position) {
        Ok(at) => Ok(&places[at]),
        Err(_) => datafusion::common::internal_err!(
            "the cached prefix computed a row that was not requested"
        ),
    }
}

/// Merges two batches that are each sorted by position.
fn merge(a: &RowBatch, b: &RowBatch) -> Result<RowBatch> {
    let (of_a, of_b) = (a.row_ids()?.position, b.row_ids()?.position);
    let mut places = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let first = j == b.len() || i < a.len() && of_a.value(i) <= of_b.value(j);
        if first {
            places.push((0, i));
            i += 1;
        } else {
            places.push((1, j));
            j += 1;
        }
    }
    let both = |a: &ArrayRef, b: &ArrayRef| -> Result<ArrayRef> {
        Ok(interleave(&[a.as_ref(), b.as_ref()], &places)?)
    };
    let columns = a.columns.iter().zip(&b.columns);
    let columns = columns.map(|(a, b)| both(a, b)).collect::<Result<_>>()?;
    let mut errors = crate::fragment::row_batch::RowErrors::new();
    for (row, &(batch, index)) in places.iter().enumerate() {
        let from = if batch == 0 { &a.errors } else { &b.errors };
        if let Some(found) = from.get(&index) {
            errors.insert(row, found.clone());
        }
    }
    Ok(RowBatch {
        columns,
        rows: both(&a.rows, &b.rows)?,
        errors,
    })
}
