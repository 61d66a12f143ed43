//! The cached prefix of a plan, which is the part below the cache point. Rows of the prefix are
//! read from the cache store, or computed and stored.
//!
//! The plan above the cache point takes the rows of the prefix from a leaf, and does not depend on
//! which rows were read from the store and which were computed. Failed rows are never stored, so
//! their errors surface in every epoch. If the store fails, rows are computed as if the store were
//! empty.

use std::collections::HashSet;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Result, internal_err};
use forebay_planner::rows::canonical::rows_text;
use forebay_planner::rows::{self, RowOp, RowPlan};
use serde::{Deserialize, Serialize};

use super::data::{SourceNames, StoredData};
use super::prefix_writer::{Fresh, PrefixWriter};
use crate::cache::{CacheKey, CacheStore, EntryInfo, FileKey, Location, RowAddress};
use crate::fragment::Fragment;
use crate::fragment::row_batch::RowBatch;
use crate::fragment::union::merged;
use crate::order::{RowLocation, Snapshot};

/// Version of the stored rows, which is part of the cache key. The version is raised when the rows
/// of an unchanged prefix are to be stored differently, so that rows of older versions are not
/// found.
const VERSION: u32 = 1;
/// Number of rows of a split that are looked up in the store at a time.
const CHUNK: usize = 4096;

/// The store for the rows of a cache point, and the expected use of the stored rows.
#[derive(Debug, Clone)]
pub(crate) struct CacheSetup {
    /// The cache store; `None` if it could not be opened. Frozen draws need a setup even without a
    /// store.
    pub store: Option<CacheStore>,
    /// Estimated cost of computing a row of the prefix, in picoseconds.
    pub compute_ps_per_row: u64,
    /// Expected number of times that each row is read.
    pub reads: u32,
    /// If random draws are frozen, the pass whose draws all epochs use.
    pub frozen: Option<u64>,
    /// The locations by which the rows of sources are known, if several processes share the store;
    /// `None` if this process alone writes an entry.
    pub shared: Option<SourceNames>,
    /// True if other processes compute the rows, and read and write the store.
    pub is_elsewhere: bool,
}

/// Returns the cache key of the prefix with canonical text `text`. `frozen` is the pass whose
/// random draws the prefix uses in all epochs; `None` if each epoch has its own draws.
pub(crate) fn key_of(text: &str, frozen: Option<u64>) -> CacheKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("forebay cached rows {VERSION}\n{text}").as_bytes());
    hasher.update(format!("pass {frozen:?}\n").as_bytes());
    CacheKey::new(*hasher.finalize().as_bytes())
}

/// Cuts `plan` at its cache point. Returns the cached prefix and the plan above the cache point, in
/// which the cache point is a leaf; `None` if `plan` has no cache point.
fn cut(plan: &RowPlan) -> Result<Option<(RowPlan, RowPlan)>> {
    let mut prefix = None;
    let above = plan.clone().rewrite(&mut |mut node| {
        if matches!(node.op, RowOp::Cache) {
            prefix = node.inputs.pop();
        }
        Ok(node)
    })?;
    Ok(prefix.map(|prefix| (prefix, above)))
}

/// The cached prefix of an opened plan.
#[derive(Debug)]
pub(crate) struct CachedPrefix {
    /// Fragment that computes those rows of the prefix that are not in the store.
    pub fragment: Fragment,
    /// For each scan of the snapshot, true if the prefix reads it.
    scans: Vec<bool>,
    /// Cache key of each file of the snapshot.
    files: Vec<FileKey>,
    /// Schema of the stored columns.
    schema: SchemaRef,
    /// For each stored column, its index among the output columns of the prefix.
    order: Vec<usize>,
    frozen: Option<u64>,
    /// Writer of the entry that holds the rows of the prefix; `None` without a store.
    kept: Option<PrefixWriter>,
    /// Number of rows that were read from the store.
    read: AtomicU64,
    /// Number of rows that had to be computed, because they were not in the store.
    computed: AtomicU64,
}

/// Numbers of rows at a cache point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// Rows that were read from the store.
    pub read: u64,
    /// Rows that were computed, because they were not in the store.
    pub computed: u64,
}

impl AddAssign for CacheUse {
    fn add_assign(&mut self, more: Self) {
        self.read = self.read.saturating_add(more.read);
        self.computed = self.computed.saturating_add(more.computed);
    }
}

/// The rows of the prefix that a segment needs: rows read from the store, and locations of the rows
/// to be computed.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Rows that were read from the store.
    rows: RecordBatch,
    /// Locations of `rows`.
    stored: Vec<RowLocation>,
    /// Locations of the rows that have to be computed.
    pub missing: Vec<RowLocation>,
}

impl Found {
    /// Iterates over the positions of all rows: those read from the store, then those to be
    /// computed.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u64> {
        let places = self.stored.iter().chain(&self.missing);
        places.map(|place| place.position)
    }

    /// Returns the numbers of these rows.
    pub(crate) fn counts(&self) -> CacheUse {
        CacheUse {
            read: self.stored.len() as u64,
            computed: self.missing.len() as u64,
        }
    }

    /// Removes and returns the rows with positions below `position`.
    pub(crate) fn take_before(&mut self, position: u64) -> Self {
        let before = |places: &[RowLocation]| places.partition_point(|p| p.position < position);
        let (stored, missing) = (before(&self.stored), before(&self.missing));
        let rest = Self {
            rows: self.rows.slice(stored, self.rows.num_rows() - stored),
            stored: self.stored.split_off(stored),
            missing: self.missing.split_off(missing),
        };
        let mut taken = std::mem::replace(self, rest);
        taken.rows = taken.rows.slice(0, stored);
        taken
    }
}

impl CachedPrefix {
    /// Opens the cache entry for the prefix of `plan`. Returns the plan above the cache point, and
    /// the prefix; `None` if `plan` has no cache point. If the store fails, a warning is logged and
    /// the result is `None`, unless the prefix has frozen draws, which affect its rows even without
    /// a store.
    pub(crate) async fn open(
        setup: &CacheSetup,
        plan: &RowPlan,
        data: &StoredData,
    ) -> Result<Option<(RowPlan, Self)>> {
        let Some((prefix, above)) = cut(plan)? else {
            return Ok(None);
        };
        let (text, order) = rows_text(&prefix)?;
        let frozen = setup.frozen.filter(|_| draws(&prefix));
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
        let mut kept = None;
        if let Some(store) = &setup.store {
            match store.entry(key, info).await {
                Ok(entry) => {
                    let is_shared = setup.shared.is_some();
                    kept = Some(PrefixWriter::new(store.clone(), entry, is_shared));
                }
                Err(error) => log::warn!("{error}; rows are computed without a cache"),
            }
        }
        if kept.is_none() && frozen.is_none() && !setup.is_elsewhere {
            return Ok(None);
        }
        let mut occurrences = Vec::new();
        prefix.visit(&mut |node| {
            if let RowOp::Scan { occurrence, .. } = &node.op {
                occurrences.push(*occurrence);
            }
        });
        let scans = data.snapshot.scans.iter();
        let prefix = Self {
            fragment: Fragment::try_new(&prefix, Vec::new())?,
            scans: scans.map(|s| occurrences.contains(&s.occurrence)).collect(),
            // If the prefix scans a file twice, the two scans may yield different rows, so the keys
            // of the file differ by scan.
            files: data.file_keys(setup.shared.as_ref(), |scan| {
                let nth = occurrences.iter().position(|&o| o == scan.occurrence);
                format!("{nth:?}")
            }),
            schema,
            order,
            frozen,
            kept,
            read: AtomicU64::new(0),
            computed: AtomicU64::new(0),
        };
        Ok(Some((above, prefix)))
    }

    /// Returns true if the scan with index `scan` in the snapshot is part of the prefix.
    pub(crate) fn holds(&self, scan: usize) -> bool {
        self.scans.get(scan).copied().unwrap_or(false)
    }

    /// Returns the pass whose random draws the prefix uses for rows of `pass`.
    pub(crate) fn pass(&self, pass: u64) -> u64 {
        self.frozen.unwrap_or(pass)
    }

    /// Returns the numbers of rows of all segments so far.
    pub(crate) fn counts(&self) -> CacheUse {
        CacheUse {
            read: self.read.load(Ordering::Relaxed),
            computed: self.computed.load(Ordering::Relaxed),
        }
    }

    fn address(&self, snapshot: &Snapshot, place: &RowLocation) -> RowAddress {
        let (file, row) = snapshot.number_in_file(place.row);
        let file = self.files[file as usize];
        RowAddress { file, row }
    }

    /// Returns true if the store has an entry for every row of `split`: the stored row, or a note
    /// that the prefix drops it. Such a split need not be read.
    pub(crate) fn knows(&self, snapshot: &Snapshot, split: u32) -> bool {
        let split = &snapshot.splits[split as usize];
        let file = self.files[split.file as usize];
        let end = split.first_row + split.rows;
        // The rows are looked up in chunks, because a split may have millions of rows.
        (split.first_row..end).step_by(CHUNK).all(|from| {
            let rows = from..end.min(from + CHUNK as u64);
            let addresses: Vec<RowAddress> = rows.map(|row| RowAddress { file, row }).collect();
            self.locations(&addresses).iter().all(Option::is_some)
        })
    }

    /// Looks up the rows at `addresses` in the store; `None` for a row that has to be computed.
    fn locations(&self, addresses: &[RowAddress]) -> Vec<Option<Location>> {
        match &self.kept {
            Some(writer) => writer.entry().find(addresses),
            None => vec![None; addresses.len()],
        }
    }

    /// Reads those rows at `places` that are stored. The other rows are returned as missing, except
    /// rows that the prefix drops.
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
        let mut rows = RecordBatch::new_empty(Arc::clone(&self.schema));
        let mut stored = Vec::with_capacity(wanted.len());
        if let Some(writer) = self.kept.as_ref().filter(|_| !wanted.is_empty()) {
            match writer.entry().read(&locations).await {
                Ok(read) => {
                    let mut lost = read.missing.into_iter().peekable();
                    for (at, place) in wanted.into_iter().enumerate() {
                        match lost.next_if_eq(&at) {
                            Some(_) => missing.push(place),
                            None => stored.push(place),
                        }
                    }
                    rows = read.batch;
                }
                Err(error) => {
                    log::warn!("{error}; the rows are computed");
                    missing.extend(wanted);
                }
            }
        }
        missing.sort_unstable_by_key(|place| place.position);
        let read = stored.len() as u64;
        self.read.fetch_add(read, Ordering::Relaxed);
        let computed = missing.len() as u64;
        self.computed.fetch_add(computed, Ordering::Relaxed);
        Found {
            rows,
            stored,
            missing,
        }
    }

    /// Merges the rows of a segment by ascending position: the rows read from the store, and
    /// `computed`, the rows computed for `found.missing`. Also returns the computed rows that are
    /// to be stored.
    pub(crate) fn join(
        &self,
        snapshot: &Snapshot,
        found: &Found,
        computed: RowBatch,
    ) -> Result<(RowBatch, Option<Fresh>)> {
        let mut fresh = None;
        if !found.missing.is_empty() {
            fresh = Some(self.fresh(snapshot, &found.missing, &computed)?);
        }
        let computed = match self.frozen {
            None => computed,
            Some(_) => with_passes(computed, &found.missing)?,
        };
        let mut columns: Vec<_> = self.order.iter().zip(found.rows.columns()).collect();
        columns.sort_unstable_by_key(|(column, _)| **column);
        let read = RowBatch {
            columns: columns.into_iter().map(|(_, c)| Arc::clone(c)).collect(),
            rows: snapshot.row_ids(&found.stored).to_array()?,
            errors: Default::default(),
        };
        Ok((merged(&[read, computed])?, fresh))
    }

    /// Selects the data to store: those `computed` rows that have no errors, and the addresses of
    /// rows that the prefix dropped.
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
            // A segment may contain a stored row twice, if batches may cross the end of a pass.
            if known.insert(address) {
                sound.push(row as u64);
                addresses.push(address);
            }
        }
        let mut seen = positions.to_vec();
        seen.sort_unstable();
        let is_dropped = |place: &&RowLocation| seen.binary_search(&place.position).is_err();
        let dropped = missing.iter().filter(is_dropped);
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

    /// Records in the store that the prefix drops those rows of `split` whose offsets are not in
    /// `kept`, which ascends.
    pub(crate) async fn note_dropped(&self, snapshot: &Snapshot, split: u32, kept: &[u32]) {
        let split = &snapshot.splits[split as usize];
        let file = self.files[split.file as usize];
        let dropped = (0..split.rows).filter(|at| kept.binary_search(&(*at as u32)).is_err());
        let dropped = dropped.map(|offset| RowAddress {
            file,
            row: split.first_row + offset,
        });
        self.store(Fresh {
            addresses: Vec::new(),
            rows: RecordBatch::new_empty(Arc::clone(&self.schema)),
            dropped: dropped.collect(),
        })
        .await;
    }

    /// Writes `fresh` to the store, if there is one.
    pub(crate) async fn store(&self, fresh: Fresh) {
        if let Some(writer) = &self.kept {
            writer.store(fresh).await;
        }
    }

    /// Makes the rows of the epoch before visible: those that this process computed are written to
    /// the store, or those that other processes wrote are found.
    pub(crate) async fn begin_epoch(&self) {
        if let Some(writer) = &self.kept {
            writer.flush().await;
        }
    }

    /// Writes the rows that are held in memory to the store. Then other processes may write the
    /// entry.
    pub(crate) async fn publish(&self) {
        if let Some(writer) = &self.kept {
            writer.publish().await;
        }
    }

    /// Returns true if this process does not write rows to the store.
    pub(crate) fn only_reads(&self) -> bool {
        self.kept.as_ref().is_none_or(PrefixWriter::has_left)
    }

    /// Makes the rows visible that other processes had written when a client began to use `view`.
    pub(crate) async fn see(&self, view: u64) {
        if let Some(writer) = &self.kept {
            writer.see(view).await;
        }
    }
}

/// Returns true if a plan makes random draws.
fn draws(plan: &RowPlan) -> bool {
    let mut draws = false;
    plan.visit(&mut |node| draws |= node.op.exprs().into_iter().any(rows::draws));
    draws
}

/// Replaces the pass of each row of `batch` by the pass of the row's location in `places`, which is
/// sorted by position.
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

/// Returns the location in `places` with position `position`. `places` is sorted by position.
fn at_position(places: &[RowLocation], position: u64) -> Result<&RowLocation> {
    match places.binary_search_by_key(&position, |place| place.position) {
        Ok(at) => Ok(&places[at]),
        Err(_) => internal_err!("the cached prefix computed a row that was not requested"),
    }
}
