//! Where the rows of a pipeline's cache point are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_planner::clauses::{Cache, Clauses};
use forebay_planner::compile::Compiled;
use forebay_planner::optimizer::Machine;
use forebay_planner::optimizer::stored::StoredRows;
use forebay_udfs::draw::pass_key;

use super::RunConfig;
use super::sizing::threads;
use crate::cache::{CacheError, CacheKey, CacheOptions, Stores};
use crate::cached::{CacheSetup, key_of};
use crate::error::{Error, Result};

/// Opens the store of a plan that has a cache point. Where it cannot be had, rows are computed, with a
/// warning; draws that are to be kept are kept even so.
///
/// # Errors
/// The user named a place that is none.
pub(super) async fn setup(
    compiled: &Compiled,
    stores: &Stores,
    seed: u64,
    epochs: Option<u64>,
    memory: u64,
) -> Result<Option<CacheSetup>> {
    let (Some(report), Some(dir)) = (&compiled.report, &compiled.clauses.options.cache_dir) else {
        return Ok(None);
    };
    // A pinned plan may have a place for a cache where this pipeline is to have none.
    if !report.cached || matches!(compiled.clauses.cache, Some(Cache::Off)) {
        return Ok(None);
    }
    let defaults = CacheOptions::default();
    let options = CacheOptions {
        quota: compiled.clauses.options.cache_quota,
        // A writer holds up to two segments in memory.
        segment_bytes: defaults.segment_bytes.min(memory / 16).max(1 << 20),
        ..defaults
    };
    let freezing = compiled.clauses.freezes();
    let store = match stores.open(dir, options).await {
        Ok(store) => Some(store),
        Err(error) => {
            let error = not_users(error)?;
            log::warn!("{error}; rows are computed without a cache");
            None
        }
    };
    if store.is_none() && !freezing {
        return Ok(None);
    }
    Ok(Some(CacheSetup {
        store,
        compute_ps_per_row: u64::try_from(report.cached_row).unwrap_or(u64::MAX),
        reads: epochs.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        frozen: freezing.then(|| pass_key(seed, 0)),
    }))
}

/// What plans are priced for: the cores of a run, and the cache's storage as it was measured.
///
/// # Errors
/// The user named a place that is none.
pub async fn machine(clauses: &Clauses, config: &RunConfig, stores: &Stores) -> Result<Machine> {
    let mut machine = Machine {
        cores: threads(config) as u64,
        ..Machine::default()
    };
    let wanted = !matches!(clauses.cache, Some(Cache::Off));
    if let Some(dir) = clauses.options.cache_dir.as_ref().filter(|_| wanted) {
        match stores.existing(dir, CacheOptions::default()).await {
            Ok(Some(store)) => {
                let stored = store.list().await;
                match &stored {
                    Ok(entries) => store.measure_again(entries).await,
                    Err(error) => log::debug!("{error}; nothing counts as stored"),
                }
                let measured = store.bandwidth();
                machine.cache_write = measured.write_bps;
                machine.cache_read = measured.read_bps;
                // Draws are kept at a step that the user names: nothing is chosen there.
                if let (Ok(entries), false) = (stored, clauses.freezes()) {
                    let rows = { entries.into_iter() }
                        .map(|entry| (entry.key, entry.rows.saturating_add(entry.dropped)));
                    machine.stored = Some(Arc::new(StoredEntries(rows.collect())));
                }
            }
            // A store that is not there yet was not measured.
            Ok(None) => {}
            Err(error) => {
                let error = not_users(error)?;
                log::debug!("{error}; it counts as not measured");
            }
        }
    }
    Ok(machine)
}

/// The rows of each entry of a store.
#[derive(Debug)]
struct StoredEntries(BTreeMap<CacheKey, u64>);

impl StoredRows for StoredEntries {
    fn rows(&self, text: &str) -> u64 {
        let rows = self.0.get(&key_of(text, None));
        rows.copied().unwrap_or_default()
    }
}

/// An error that is not the user's, which a run survives.
fn not_users(error: CacheError) -> Result<CacheError> {
    match error.is_user() {
        true => Err(Error::Config(error.to_string())),
        false => Ok(error),
    }
}

#[cfg(test)]
mod tests;
