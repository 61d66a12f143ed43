//! The cache store for the rows of a pipeline's cache point, and the store's measurements for the
//! planner.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_planner::clauses::{CacheClause, Clauses};
use forebay_planner::compile::Compiled;
use forebay_planner::optimizer::PlanningContext;
use forebay_planner::optimizer::stored::CacheContents;
use forebay_udfs::draw::pass_key;

use super::JobConfig;
use crate::cache::{CacheError, CacheKey, CacheOptions, Stores};
use crate::error::{Error, Result};
use crate::pool::threads;
use crate::segment::{CacheSetup, key_of};

/// Opens the cache store of `compiled` if its plan has a cache point. If the store cannot be
/// opened, a warning is logged, and rows are computed without a cache; frozen draws stay frozen
/// even then.
///
/// Fails if the location that the user named is invalid.
pub(super) async fn setup(
    compiled: &Compiled,
    config: &JobConfig,
    stores: &Stores,
) -> Result<Option<CacheSetup>> {
    let (Some(report), Some(dir)) = (&compiled.report, &compiled.clauses.options.cache_dir) else {
        return Ok(None);
    };
    // A saved plan may have a cache point although the pipeline says CACHE OFF.
    if !report.cached || matches!(compiled.clauses.cache, Some(CacheClause::Off)) {
        return Ok(None);
    }
    let defaults = CacheOptions::default();
    let options = CacheOptions {
        quota: compiled.clauses.options.cache_quota,
        // A writer holds up to two segments in memory.
        segment_bytes: defaults
            .segment_bytes
            .min(config.memory() / 16)
            .max(1 << 20),
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
    let setup = CacheSetup {
        store,
        compute_ps_per_row: u64::try_from(report.cached_row).unwrap_or(u64::MAX),
        reads: { config.epochs }.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        frozen: freezing.then(|| pass_key(config.seed, 0)),
    };
    Ok((setup.store.is_some() || freezing).then_some(setup))
}

/// Returns the machine for which plans are priced: the number of compute threads, and the measured
/// bandwidth and contents of the cache store.
///
/// # Errors
/// Fails if the location that the user named is invalid.
pub async fn machine(
    clauses: &Clauses,
    wanted_threads: Option<usize>,
    stores: &Stores,
) -> Result<PlanningContext> {
    let mut machine = PlanningContext {
        cores: threads(wanted_threads) as u64,
        ..PlanningContext::default()
    };
    let wanted = !matches!(clauses.cache, Some(CacheClause::Off));
    if let Some(dir) = clauses.options.cache_dir.as_ref().filter(|_| wanted) {
        match stores.existing(dir, CacheOptions::default()).await {
            Ok(Some(store)) => {
                let stored = store.list().await;
                match &stored {
                    Ok(entries) => store.measure_again(entries).await,
                    Err(error) => log::debug!("{error}; planning assumes that nothing is stored"),
                }
                let measured = store.bandwidth();
                machine.cache_write = measured.write_bps;
                machine.cache_read = measured.read_bps;
                // With frozen draws, the user chooses the cache point, so the contents of the store
                // do not influence the plan.
                if let (Ok(entries), false) = (stored, clauses.freezes()) {
                    let rows = { entries.into_iter() }
                        .map(|entry| (entry.key, entry.rows.saturating_add(entry.dropped)));
                    machine.stored = Some(Arc::new(StoredEntries(rows.collect())));
                }
            }
            // A store that does not exist yet has no measurements.
            Ok(None) => {}
            Err(error) => {
                let error = not_users(error)?;
                log::debug!("{error}; planning assumes that it was not measured");
            }
        }
    }
    Ok(machine)
}

/// The number of stored and dropped rows in each entry of a cache store.
#[derive(Debug)]
struct StoredEntries(BTreeMap<CacheKey, u64>);

impl CacheContents for StoredEntries {
    fn rows(&self, text: &str) -> u64 {
        let rows = self.0.get(&key_of(text, None));
        rows.copied().unwrap_or_default()
    }
}

/// Returns `error` if a run can continue without the cache; fails with `error` if the user is at
/// fault.
fn not_users(error: CacheError) -> Result<CacheError> {
    if error.is_user() {
        Err(Error::Config(error.to_string()))
    } else {
        Ok(error)
    }
}

#[cfg(test)]
mod tests;
