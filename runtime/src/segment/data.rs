//! The stored rows of a pipeline, and their sources.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use datafusion::common::{Result, not_impl_err};
use datafusion::datasource::source_as_provider;
use forebay_planner::rows::membership::visit_stream;
use forebay_planner::rows::{RowOp, RowPlan};

use crate::cache::FileKey;
use crate::order::{Snapshot, SnapshotScan};
#[cfg(doc)]
use crate::source::SourceFile;
use crate::source::{Access, Source, SourceTable};

/// A snapshot, and the sources from which the snapshot's rows are read.
#[derive(Debug)]
pub(crate) struct StoredData {
    /// The stored rows.
    pub snapshot: Arc<Snapshot>,
    /// Source of each scan of the snapshot.
    pub sources: Vec<Arc<dyn Source>>,
}

impl StoredData {
    /// Returns the stored rows that `plan`, which has no LIMIT, scans. `ranges` maps the occurrence
    /// number of a scan to the range of its rows to use; a scan that is not in `ranges` is used
    /// whole.
    ///
    /// # Errors
    /// Fails if a scan does not read files, or if a split has more than `u32::MAX` rows.
    pub(crate) fn of_plan(plan: &RowPlan, ranges: &BTreeMap<u32, Range<u64>>) -> Result<Self> {
        let (mut scans, mut sources) = (Vec::new(), Vec::new());
        for node in stream_scans(plan) {
            let RowOp::Scan {
                occurrence, source, ..
            } = &node.op
            else {
                continue;
            };
            let provider = source_as_provider(source)?;
            let Some(table) = provider.downcast_ref::<SourceTable>() else {
                return not_impl_err!(
                    "a pipeline reads from files; a table of another kind is not supported yet"
                );
            };
            scans.push(SnapshotScan {
                occurrence: *occurrence,
                location: table.source().spec().location.clone(),
                manifest: Arc::clone(table.source().manifest()),
                range: ranges.get(occurrence).cloned().unwrap_or(0..u64::MAX),
            });
            sources.push(Arc::clone(table.source()));
        }
        let snapshot = Arc::new(Snapshot::try_new(scans)?);
        Ok(Self { snapshot, sources })
    }

    /// Returns true if the rows of some scan must be staged (held in memory or spilled) to be
    /// reordered.
    pub(crate) fn is_staged(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| source.access() == Access::Staged)
    }

    /// Returns a cache key for each file of the snapshot, built from the location by which the
    /// file's source is known, the file's [identity](SourceFile::identity) and time of last change,
    /// and from the text that `name` returns for the file's scan. `names` are other locations than
    /// those that this process reads.
    pub(crate) fn file_keys(
        &self,
        names: Option<&SourceNames>,
        name: impl Fn(&SnapshotScan) -> String,
    ) -> Vec<FileKey> {
        let mut keys = Vec::new();
        for scan in &self.snapshot.scans {
            let named = names.and_then(|names| names.get(&scan.location));
            let root = named.map_or_else(|| cached_location(&scan.location), String::clone);
            for file in &scan.manifest.files {
                let path = format!("{} {root}\0{}", name(scan), file.path);
                keys.push(FileKey::of(&path, &file.identity(), file.modified));
            }
        }
        keys
    }
}

/// Locations by which cached rows of sources are known, by the locations that a process reads. They
/// are those of the client, so that workers with other mount points find each other's rows.
pub type SourceNames = BTreeMap<String, String>;

/// Returns the text by which cached rows of the source at `location` are known. Different texts may
/// name the same location, such as a relative and an absolute path.
pub fn cached_location(location: &str) -> String {
    if let Ok(path) = Path::new(location).canonicalize() {
        return path.display().to_string();
    }
    // It is the location of a store, or of files that other processes read.
    let is_url = location.contains("://");
    let absolute = (!is_url).then(|| std::path::absolute(location).ok());
    let path = absolute.flatten();
    path.map_or_else(
        || location.to_owned(),
        |path| path.display().to_string().trim_end_matches('/').to_owned(),
    )
}

/// Returns the scans whose rows flow to the output, by ascending occurrence number. Scans on the
/// right side of a lookup are left out.
pub(super) fn stream_scans(plan: &RowPlan) -> Vec<&RowPlan> {
    let mut scans = Vec::new();
    visit_stream(plan, &mut |node| {
        if matches!(node.op, RowOp::Scan { .. }) {
            scans.push(node);
        }
    });
    scans
}
