//! The sources that a worker has opened, for jobs and for clients without access to the data.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::Result as EngineResult;
use forebay_planner::error::message_of;
use forebay_planner::source::SourceSpec;
use forebay_runtime::source::{FileResolver, Source};

use crate::location::mapped;

/// Number of sources that a worker keeps open.
const OPEN_SOURCES: usize = 64;

/// The sources of a worker. Jobs and clients that read the same files share an opened source.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Roots of data whose place on this machine differs from their place on the client's: the
    /// client's root, and this machine's.
    roots: Vec<(String, String)>,
    /// Opens sources. It keeps the connections to object stores.
    resolver: FileResolver,
    /// The sources, least recently used first.
    recent: Mutex<VecDeque<OpenedSource>>,
}

#[derive(Debug, Clone)]
struct OpenedSource {
    spec: SourceSpec,
    /// Hash of the manifest.
    files: String,
    source: Arc<dyn Source>,
}

impl Sources {
    pub(crate) fn new(roots: Vec<(String, String)>, resolver: FileResolver) -> Self {
        Self {
            roots,
            resolver,
            recent: Mutex::default(),
        }
    }

    /// Opens a source: lists its files anew.
    pub(crate) async fn open(&self, spec: &SourceSpec) -> EngineResult<Arc<dyn Source>> {
        let source = self.resolver.open(&self.here(spec)).await?;
        let opened = OpenedSource {
            spec: spec.clone(),
            files: source.manifest().hash(),
            source: Arc::clone(&source),
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|of| of.files != opened.files || of.spec != opened.spec);
        recent.push_back(opened);
        if recent.len() > OPEN_SOURCES {
            recent.pop_front();
        }
        Ok(source)
    }

    /// Returns the source with the files that have the hash `files`. Opens it if necessary.
    ///
    /// # Errors
    /// Fails with the reason if this machine does not have these files.
    pub(crate) async fn get(
        &self,
        spec: &SourceSpec,
        files: &str,
    ) -> Result<Arc<dyn Source>, String> {
        if let Some(known) = self.known(spec, files) {
            return Ok(known);
        }
        let opened = self.open(spec).await.map_err(|error| message_of(&error))?;
        let found = opened.manifest().hash();
        if found == files {
            return Ok(opened);
        }
        let manifest = opened.manifest();
        Err(format!(
            "the files of '{}' on this machine ({} files) are not those that the client got from another worker: the \
             manifest has the hash {found} here, and {files} there; let all workers read the same files, or map the \
             folder with --data",
            opened.spec().location,
            manifest.files.len(),
        ))
    }

    fn known(&self, spec: &SourceSpec, files: &str) -> Option<Arc<dyn Source>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |of: &OpenedSource| of.files == files && of.spec == *spec;
        let at = recent.iter().position(is_wanted)?;
        let found = recent.remove(at)?;
        let source = Arc::clone(&found.source);
        recent.push_back(found);
        Some(source)
    }

    /// Returns the description of the same source on this machine.
    fn here(&self, spec: &SourceSpec) -> SourceSpec {
        let mut here = spec.clone();
        here.location = mapped(&self.roots, &spec.location);
        here
    }
}
