//! The stored rows of a pipeline: the files and splits of all its scans, and the keys of their rows.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{UInt32Array, UInt64Array};
use datafusion::common::{Result, exec_err};
use forebay_udfs::hash::{combine, hash_bytes};
use forebay_udfs::row::Rows;

use crate::cache::FileKey;
use crate::order::{Place, StoredRow};
use crate::source::Source;
#[cfg(doc)]
use crate::source::SourceFile;

/// Version of the snapshot's hash; raised when it changes for unchanged files. Tokens hold it, so their form is
/// raised with it.
const HASH_VERSION: u32 = 2;

/// The stored rows of a pipeline, numbered from 0 in stored order over all scans.
#[derive(Debug)]
pub struct Snapshot {
    /// The scans, by ascending occurrence.
    pub scans: Vec<ScanSource>,
    files: Vec<File>,
    /// All splits, in stored order.
    pub splits: Vec<SnapshotSplit>,
    rows: u64,
}

/// A scan of a plan and what it reads.
#[derive(Debug, Clone)]
pub struct ScanSource {
    /// Ordinal of the scan in the plan.
    pub occurrence: u32,
    /// The source.
    pub source: Arc<dyn Source>,
    /// Stored rows that a LIMIT leaves of the scan.
    pub range: Range<u64>,
}

#[derive(Debug)]
struct File {
    scan: u32,
    /// Index in the source's manifest.
    index: u32,
    hash: u64,
}

/// A split, or the part of it that a LIMIT leaves.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotSplit {
    /// Index into the snapshot's scans.
    pub scan: u32,
    /// Index into the snapshot's files.
    pub file: u32,
    /// Index in the file's splits.
    pub split: u32,
    /// Number in the file of the first row.
    pub first_row: u64,
    /// Rows.
    pub rows: u64,
    /// Number of the first row in the snapshot.
    pub start: u64,
    /// Bytes that reading it takes.
    pub bytes: u64,
}

impl Snapshot {
    /// The rows of these scans, which stand by ascending occurrence.
    ///
    /// # Errors
    /// A split of more than `u32::MAX` rows.
    pub fn try_new(scans: Vec<ScanSource>) -> Result<Self> {
        let (mut files, mut splits, mut rows) = (Vec::new(), Vec::new(), 0);
        for (
            scan,
            ScanSource {
                occurrence,
                source,
                range,
            },
        ) in scans.iter().enumerate()
        {
            let mut at = 0;
            for (index, file) in source.manifest().files.iter().enumerate() {
                let hash = combine(u64::from(*occurrence), hash_bytes(file.path.as_bytes()));
                for (number, split) in file.splits.iter().enumerate() {
                    let from = range.start.clamp(at, at + split.rows) - at;
                    let to = range.end.clamp(at, at + split.rows) - at;
                    at += split.rows;
                    if from == to {
                        continue;
                    }
                    if to - from > u64::from(u32::MAX) {
                        return exec_err!(
                            "{}: {} rows in one split are too many; write the file with smaller row groups",
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
        Ok(Self {
            scans,
            files,
            splits,
            rows,
        })
    }

    /// Number of stored rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of stored rows of a scan, given as an index into the snapshot's scans.
    pub fn scan_rows(&self, scan: u32) -> u64 {
        self.splits
            .iter()
            .filter(|s| s.scan == scan)
            .map(|s| s.rows)
            .sum()
    }

    /// Bytes that reading everything takes.
    pub fn bytes(&self) -> u64 {
        let bytes = self.splits.iter().map(|s| s.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Stored bytes of a row in the mean.
    pub fn row_bytes(&self) -> u64 {
        self.bytes() / self.rows().max(1)
    }

    /// The hash of a row's key.
    #[inline]
    pub fn row_hash(&self, file: u32, row: u64) -> u64 {
        combine(self.files[file as usize].hash, row)
    }

    /// The hash of a split's identity: (occurrence, relative path, number of its first row).
    pub fn split_hash(&self, split: &SnapshotSplit) -> u64 {
        self.row_hash(split.file, split.first_row)
    }

    /// Index of a file in its source's manifest.
    pub fn file_in_source(&self, file: u32) -> u32 {
        self.files[file as usize].index
    }

    /// The path of a file, relative to its source, as the manifest has it.
    pub fn path(&self, file: u32) -> &str {
        let File { scan, index, .. } = self.files[file as usize];
        &self.scans[scan as usize].source.manifest().files[index as usize].path
    }

    /// Ordinal in the plan of a file's source.
    pub fn occurrence(&self, file: u32) -> u32 {
        let scan = self.files[file as usize].scan;
        self.scans[scan as usize].occurrence
    }

    /// The row of a file, given by the ordinal of its source and its relative path; `None` where there is none.
    pub fn find(&self, occurrence: u32, file: &str, row: u64) -> Option<StoredRow> {
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

    /// Where a file's source is.
    pub fn location(&self, file: u32) -> &str {
        let scan = self.files[file as usize].scan;
        &self.scans[scan as usize].source.spec().location
    }

    /// Number of a row in the snapshot.
    #[inline]
    pub fn stored(&self, row: StoredRow) -> u64 {
        self.splits[row.split as usize].start + u64::from(row.offset)
    }

    /// The row of a number in the snapshot; `None` where it has fewer rows.
    pub fn row(&self, stored: u64) -> Option<StoredRow> {
        if stored >= self.rows {
            return None;
        }
        let split = self.splits.partition_point(|s| s.start <= stored) - 1;
        Some(StoredRow {
            split: split as u32,
            offset: (stored - self.splits[split].start) as u32,
        })
    }

    /// The hidden row column of rows.
    pub fn row_ids(&self, places: &[Place]) -> Rows {
        let n = places.len();
        let mut files = Vec::with_capacity(n);
        let mut numbers = Vec::with_capacity(n);
        let mut hashes = Vec::with_capacity(n);
        for place in places {
            let split = &self.splits[place.split as usize];
            let row = split.first_row + u64::from(place.offset);
            files.push(split.file);
            numbers.push(row);
            hashes.push(self.row_hash(split.file, row));
        }
        Rows {
            position: UInt64Array::from(places.iter().map(|p| p.position).collect::<Vec<_>>()),
            file: UInt32Array::from(files),
            row: UInt64Array::from(numbers),
            child: UInt32Array::from(vec![0; n]),
            hash: UInt64Array::from(hashes),
            pass: UInt64Array::from(places.iter().map(|p| p.pass).collect::<Vec<_>>()),
        }
    }

    /// Names the files as they are now: where they are, their [identity](SourceFile::identity), and when they were
    /// changed last. A scan is called by what `name` says.
    pub fn file_keys(&self, name: impl Fn(&ScanSource) -> String) -> Vec<FileKey> {
        let mut keys = Vec::new();
        for of_scan in &self.scans {
            let location = &of_scan.source.spec().location;
            // However the same place is written.
            let whole = Path::new(location).canonicalize();
            let root = whole.map_or_else(|_| location.clone(), |p| p.display().to_string());
            for file in &of_scan.source.manifest().files {
                let path = format!("{} {root}\0{}", name(of_scan), file.path);
                keys.push(FileKey::of(&path, &file.identity(), file.modified));
            }
        }
        keys
    }

    /// Names the data: BLAKE3 over the relative path and the [identity](SourceFile::identity) of every scan's
    /// files.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&HASH_VERSION.to_le_bytes());
        for scan in &self.scans {
            hasher.update(&scan.occurrence.to_le_bytes());
            for file in &scan.source.manifest().files {
                hasher.update(&(file.path.len() as u64).to_le_bytes());
                hasher.update(file.path.as_bytes());
                hasher.update(&file.identity());
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}
