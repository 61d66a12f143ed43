//! The stored rows of a pipeline, and their sources.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use datafusion::common::{Result, not_impl_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::TableSource;
use forebay_planner::rows::membership::visit_stream;
use forebay_planner::rows::{RowOp, RowPlan};

use crate::cache::FileKey;
use crate::order::{Snapshot, SnapshotScan};
#[cfg(doc)]
use crate::source::SourceFile;
use crate::source::{Access, Source, SourceTable};

/// A snapshot, and the sources its rows are read from.
#[derive(Debug)]
pub(crate) struct StoredData {
    /// The stored rows.
    pub snapshot: Arc<Snapshot>,
    /// Source of each scan of the snapshot.
    pub sources: Vec<Arc<dyn Source>>,
}

/// A scan of a plan and its source.
#[derive(Debug, Clone)]
pub(crate) struct ScanSource {
    /// Ordinal of the scan in the plan.
    pub occurrence: u32,
    /// The source that the scan reads.
    pub source: Arc<dyn Source>,
    /// Stored rows of the scan that remain under a LIMIT.
    pub range: Range<u64>,
}

impl StoredData {
    /// Creates the data of these scans, which are ordered by ascending occurrence.
    ///
    /// # Errors
    /// Fails if a split has more than `u32::MAX` rows.
    pub(crate) fn try_new(scans: Vec<ScanSource>) -> Result<Self> {
        let snapshot = scans.iter().map(|scan| SnapshotScan {
            occurrence: scan.occurrence,
            location: scan.source.spec().location.clone(),
            manifest: Arc::clone(scan.source.manifest()),
            range: scan.range.clone(),
        });
        Ok(Self {
            snapshot: Arc::new(Snapshot::try_new(snapshot.collect())?),
            sources: scans.into_iter().map(|scan| scan.source).collect(),
        })
    }

    /// Returns the stored rows of a plan without limits; `ranges` restricts the rows of each scan.
    ///
    /// # Errors
    /// Fails if a scan does not read files.
    pub(crate) fn of_plan(plan: &RowPlan, ranges: &BTreeMap<u32, Range<u64>>) -> Result<Self> {
        let mut scans = Vec::new();
        for node in stream_scans(plan) {
            let RowOp::Scan {
                occurrence, source, ..
            } = &node.op
            else {
                continue;
            };
            scans.push(ScanSource {
                occurrence: *occurrence,
                source: open_source(source)?,
                range: ranges.get(occurrence).cloned().unwrap_or(0..u64::MAX),
            });
        }
        Self::try_new(scans)
    }

    /// Returns true if the rows of some scan are staged (held or spilled) to be reordered.
    pub(crate) fn is_staged(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| source.access() == Access::Staged)
    }

    /// Returns keys of the files in their current state: location, [identity](SourceFile::identity) and time of last
    /// change. `name` identifies the scan.
    pub(crate) fn file_keys(&self, name: impl Fn(&SnapshotScan) -> String) -> Vec<FileKey> {
        let mut keys = Vec::new();
        for scan in &self.snapshot.scans {
            // Several location texts may name the same location.
            let whole = Path::new(&scan.location).canonicalize();
            let root = whole.map_or_else(|_| scan.location.clone(), |p| p.display().to_string());
            for file in &scan.manifest.files {
                let path = format!("{} {root}\0{}", name(scan), file.path);
                keys.push(FileKey::of(&path, &file.identity(), file.modified));
            }
        }
        keys
    }
}

/// Returns the scans whose rows flow to the output, by ascending occurrence.
pub(super) fn stream_scans(plan: &RowPlan) -> Vec<&RowPlan> {
    let mut scans = Vec::new();
    visit_stream(plan, &mut |node| {
        if matches!(node.op, RowOp::Scan { .. }) {
            scans.push(node);
        }
    });
    scans
}

/// Returns the source of a table.
pub(crate) fn open_source(table: &Arc<dyn TableSource>) -> Result<Arc<dyn Source>> {
    let provider = source_as_provider(table)?;
    match provider.downcast_ref::<SourceTable>() {
        Some(table) => Ok(Arc::clone(table.source())),
        None => not_impl_err!(
            "a pipeline reads from files; a table of another kind is not supported yet"
        ),
    }
}
