//! The snapshot of a pipeline: the files and splits of all its scans, and the keys that identify
//! their rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{UInt32Array, UInt64Array};
use datafusion::common::{Result, exec_err};
use forebay_udfs::hash::{combine, hash_bytes};
use forebay_udfs::row::RowColumn;

use super::row::{RowLocation, StoredRow};
use crate::source::Manifest;
#[cfg(doc)]
use crate::source::SourceFile;

/// Version of the snapshot's hash. A code change that changes the hash of unchanged files must
/// raise this version and the version of tokens, because tokens contain the hash.
const HASH_VERSION: u32 = 2;

/// The stored rows of a pipeline, numbered from 0 in stored order over all scans.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The scans, in ascending order of `occurrence`.
    pub scans: Vec<SnapshotScan>,
    files: Vec<File>,
    /// All splits, in stored order.
    pub splits: Vec<SnapshotSplit>,
    rows: u64,
    /// Bytes that are read from files when every split is read once.
    bytes: u64,
}

/// A scan of a plan, and the files that the scan reads.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotScan {
    /// Ordinal of the scan in the plan.
    pub occurrence: u32,
    /// Location of the scan's source.
    pub location: String,
    /// Files of the scan's source.
    pub manifest: Arc<Manifest>,
    /// Range of the scan's rows that remain under a LIMIT. The rows are numbered from 0 over all
    /// files of the scan.
    pub range: Range<u64>,
}

#[derive(Debug)]
struct File {
    scan: u32,
    /// Index of the file in the source's manifest.
    index: u32,
    hash: u64,
}

/// A split of a file, without the rows that a LIMIT leaves out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotSplit {
    /// Index into the snapshot's scans.
    pub scan: u32,
    /// Index into the snapshot's files.
    pub file: u32,
    /// Index of this split in its file's splits.
    pub split: u32,
    /// Number in the file of this split's first row, from 0.
    pub first_row: u64,
    /// Number of rows in this split.
    pub rows: u64,
    /// Number in the snapshot of this split's first row, from 0.
    pub start: u64,
    /// Number of bytes that are read from the file for this split.
    pub bytes: u64,
}

impl Snapshot {
    /// Creates the snapshot of `scans`, which must be in ascending order of occurrence.
    ///
    /// # Errors
    /// Fails if a split has more than `u32::MAX` rows.
    pub(crate) fn try_new(scans: Vec<SnapshotScan>) -> Result<Self> {
        let (mut files, mut splits, mut rows) = (Vec::new(), Vec::new(), 0);
        for (scan, of_scan) in scans.iter().enumerate() {
            let range = &of_scan.range;
            let mut at = 0;
            for (index, file) in of_scan.manifest.files.iter().enumerate() {
                let hash = combine(
                    u64::from(of_scan.occurrence),
                    hash_bytes(file.path.as_bytes()),
                );
                for (number, split) in file.splits.iter().enumerate() {
                    let from = range.start.clamp(at, at + split.rows) - at;
                    let to = range.end.clamp(at, at + split.rows) - at;
                    at += split.rows;
                    if from == to {
                        continue;
                    }
                    if to - from > u64::from(u32::MAX) {
                        return exec_err!(
                            "{}: a split has {} rows, more than 4294967295; write the file with smaller row groups",
                            file.path,
                            split.rows
                        );
                    }
                    splits.push(SnapshotSplit {
                        scan: scan as u32,
                        file: files.len() as u32,
                        split: number as u32,
                        first_row: split.first_row + from,
                        rows: to - from,
                        start: rows,
                        bytes: split.bytes,
                    });
                    rows += to - from;
                }
                files.push(File {
                    scan: scan as u32,
                    index: index as u32,
                    hash,
                });
            }
        }
        let bytes = splits.iter().map(|split: &SnapshotSplit| split.bytes);
        Ok(Self {
            bytes: bytes.fold(0, u64::saturating_add),
            scans,
            files,
            splits,
            rows,
        })
    }

    /// Returns the number of stored rows in the snapshot.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of files over all scans.
    pub(crate) const fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the number of stored rows of the scan at index `scan` of the snapshot.
    pub(crate) fn scan_rows(&self, scan: u32) -> u64 {
        let splits = self.splits.iter().filter(|s| s.scan == scan);
        splits.map(|s| s.rows).sum()
    }

    /// Returns the number of bytes read from files when every split is read once.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the mean size of a stored row, in bytes.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.bytes / self.rows.max(1)
    }

    /// Returns the hash that identifies a row: `row` is its number in the file at index `file` of
    /// the snapshot.
    #[inline]
    pub(crate) fn row_hash(&self, file: u32, row: u64) -> u64 {
        combine(self.files[file as usize].hash, row)
    }

    /// Returns the hash that identifies a split, computed from the scan's occurrence, the file's
    /// relative path and the number of the split's first row in the file.
    pub(crate) fn split_hash(&self, split: &SnapshotSplit) -> u64 {
        self.row_hash(split.file, split.first_row)
    }

    /// Converts `file`, an index into the snapshot's files, to an index into the manifest of the
    /// file's source.
    pub(crate) fn file_in_source(&self, file: u32) -> u32 {
        self.files[file as usize].index
    }

    /// Returns the file that holds `row`, as an index into the snapshot's files, and the number of
    /// the row in that file.
    #[inline]
    pub(crate) fn number_in_file(&self, row: StoredRow) -> (u32, u64) {
        let split = &self.splits[row.split as usize];
        (split.file, split.first_row + u64::from(row.offset))
    }

    /// Returns the file that holds `row`, as an index into the manifest of the file's source, and
    /// the number of the row in that file.
    pub(crate) fn in_source(&self, row: StoredRow) -> (u32, u64) {
        let (file, number) = self.number_in_file(row);
        (self.file_in_source(file), number)
    }

    /// Returns the index of the scan that a row belongs to.
    #[inline]
    pub(crate) fn scan_of(&self, row: StoredRow) -> usize {
        self.splits[row.split as usize].scan as usize
    }

    /// Returns the path of a file as in its source's manifest, relative to the source's location.
    pub(crate) fn path(&self, file: u32) -> &str {
        let File { scan, index, .. } = self.files[file as usize];
        &self.scans[scan as usize].manifest.files[index as usize].path
    }

    /// Returns the occurrence of the scan that a file belongs to: the scan's ordinal in the plan.
    pub(crate) fn occurrence(&self, file: u32) -> u32 {
        let scan = self.files[file as usize].scan;
        self.scans[scan as usize].occurrence
    }

    /// Finds row number `row` of the file with relative path `file`, in the scan with ordinal
    /// `occurrence`; `None` if there is no such row.
    pub(crate) fn find(&self, occurrence: u32, file: &str, row: u64) -> Option<StoredRow> {
        let split = self.splits.iter().position(|split| {
            (split.first_row..split.first_row + split.rows).contains(&row)
                && self.occurrence(split.file) == occurrence
                && self.path(split.file) == file
        })?;
        Some(StoredRow {
            split: split as u32,
            offset: (row - self.splits[split].first_row) as u32,
        })
    }

    /// Returns the location of a file's source.
    pub(crate) fn location(&self, file: u32) -> &str {
        let scan = self.files[file as usize].scan;
        &self.scans[scan as usize].location
    }

    /// Returns the number of a row in the snapshot.
    #[inline]
    pub(crate) fn stored(&self, row: StoredRow) -> u64 {
        self.splits[row.split as usize].start + u64::from(row.offset)
    }

    /// Returns the stored row with number `stored` in the snapshot; `None` if the snapshot has
    /// fewer rows.
    pub(crate) fn row(&self, stored: u64) -> Option<StoredRow> {
        if stored >= self.rows {
            return None;
        }
        let split = self.splits.partition_point(|s| s.start <= stored) - 1;
        Some(StoredRow {
            split: split as u32,
            offset: (stored - self.splits[split].start) as u32,
        })
    }

    /// Builds the hidden row column for the rows at `places`.
    pub(crate) fn row_ids(&self, places: &[RowLocation]) -> RowColumn {
        let n = places.len();
        let mut files = Vec::with_capacity(n);
        let mut numbers = Vec::with_capacity(n);
        let mut hashes = Vec::with_capacity(n);
        for place in places {
            let (file, row) = self.number_in_file(place.row);
            files.push(file);
            numbers.push(row);
            hashes.push(self.row_hash(file, row));
        }
        RowColumn {
            position: UInt64Array::from_iter_values(places.iter().map(|p| p.position)),
            file: UInt32Array::from(files),
            row: UInt64Array::from(numbers),
            child: UInt32Array::from(vec![0; n]),
            hash: UInt64Array::from(hashes),
            pass: UInt64Array::from_iter_values(places.iter().map(|p| p.pass)),
        }
    }

    /// Returns the hash that identifies the data: BLAKE3 over the relative path and the
    /// [identity](SourceFile::identity) of every file of every scan.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&HASH_VERSION.to_le_bytes());
        for scan in &self.scans {
            hasher.update(&scan.occurrence.to_le_bytes());
            for file in &scan.manifest.files {
                hasher.update(&(file.path.len() as u64).to_le_bytes());
                hasher.update(file.path.as_bytes());
                hasher.update(&file.identity());
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}
