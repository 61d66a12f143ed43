//! The facts about a cache store on which the choice of a plan depends.

use std::collections::BTreeMap;

use forebay_planner::clauses::{CacheClause, Clauses};
use forebay_planner::optimizer::PlanningContext;
use forebay_planner::optimizer::stored::CacheContents;
use serde::{Deserialize, Serialize};

use super::not_users;
use crate::cache::{CacheKey, CacheOptions, Stores, Summary};
use crate::error::Result;
use crate::pool::threads;
use crate::segment::key_of;

/// The measured bandwidth of a cache store, and its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFacts {
    /// Write bandwidth, in bytes per second; `None` if it was not measured.
    pub write_bps: Option<u64>,
    /// Read bandwidth, in bytes per second; `None` if it was not measured.
    pub read_bps: Option<u64>,
    /// Number of stored and dropped rows of each entry, by the entry's key; `None` if unknown.
    rows: Option<BTreeMap<[u8; 32], u64>>,
}

impl CacheFacts {
    /// Returns the facts about the store at `dir`. A store that does not exist yet has none.
    ///
    /// # Errors
    /// Fails if `dir` cannot be the location of a cache.
    pub async fn of(dir: &str, stores: &Stores) -> Result<Self> {
        let store = match stores.existing(dir, CacheOptions::default()).await {
            Ok(Some(store)) => store,
            Ok(None) => return Ok(Self::default()),
            Err(error) => {
                let error = not_users(error)?;
                log::debug!("{error}; planning assumes that it was not measured");
                return Ok(Self::default());
            }
        };
        let stored = store.list().await;
        match &stored {
            Ok(entries) => store.measure_again(entries).await,
            Err(error) => log::debug!("{error}; planning assumes that nothing is stored"),
        }
        let measured = store.bandwidth();
        let count = |entry: Summary| (*entry.key.bytes(), entry.rows.saturating_add(entry.dropped));
        Ok(Self {
            write_bps: measured.write_bps,
            read_bps: measured.read_bps,
            rows: stored.ok().map(|all| all.into_iter().map(count).collect()),
        })
    }
}

impl CacheContents for CacheFacts {
    fn rows(&self, text: &str) -> u64 {
        let key: CacheKey = key_of(text, None);
        let rows = self.rows.as_ref().and_then(|rows| rows.get(key.bytes()));
        rows.copied().unwrap_or_default()
    }
}

/// Returns the location of the cache on which the choice of a plan depends; `None` if there is none.
pub fn planned_cache(clauses: &Clauses) -> Option<&str> {
    let wanted = !matches!(clauses.cache, Some(CacheClause::Off));
    clauses.options.cache_dir.as_deref().filter(|_| wanted)
}

/// Returns the machine for which plans are priced: the number of compute threads, and the measured
/// bandwidth and contents of the cache store.
pub fn machine(
    clauses: &Clauses,
    wanted_threads: Option<usize>,
    cache: CacheFacts,
) -> PlanningContext {
    let mut machine = PlanningContext {
        cores: threads(wanted_threads) as u64,
        cache_write: cache.write_bps,
        cache_read: cache.read_bps,
        ..PlanningContext::default()
    };
    // With frozen draws, the user chooses the cache point, so the contents of the store do not
    // influence the plan.
    if cache.rows.is_some() && !clauses.freezes() {
        machine.stored = Some(std::sync::Arc::new(cache));
    }
    machine
}
