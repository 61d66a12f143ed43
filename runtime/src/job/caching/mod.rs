//! The cache store for the rows of a pipeline's cache point, and the store's measurements for the
//! planner.

mod facts;

use forebay_planner::clauses::CacheClause;
use forebay_planner::compile::Compiled;
use forebay_udfs::draw::pass_key;

pub use self::facts::{CacheFacts, machine, planned_cache};
use super::config::{JobCache, JobConfig, SharedCache};
use crate::cache::{CacheError, CacheOptions, CacheStore, Stores};
use crate::error::{Error, Result};
use crate::segment::CacheSetup;

/// Returns the location of the store that a job of `compiled` uses; `None` if its plan has no cache
/// point.
pub fn used_cache(compiled: &Compiled) -> Option<&str> {
    let report = compiled.report.as_ref()?;
    // A saved plan may have a cache point although the pipeline says CACHE OFF.
    let is_used = report.cached && !matches!(compiled.clauses.cache, Some(CacheClause::Off));
    { compiled.clauses.options.cache_dir.as_deref() }.filter(|_| is_used)
}

/// Opens the cache store of `compiled` if its plan has a cache point. If the store cannot be opened,
/// a warning is logged, and rows are computed without a cache; frozen draws stay frozen even then.
///
/// Fails if the location that the user named is invalid, or if the store is not the one that other
/// processes share.
pub(super) async fn setup(
    compiled: &Compiled,
    config: &JobConfig,
    stores: &Stores,
) -> Result<Option<CacheSetup>> {
    let (Some(report), Some(dir)) = (&compiled.report, used_cache(compiled)) else {
        return Ok(None);
    };
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
    let (store, shared) = match &config.cache {
        JobCache::Own => (own(dir, options, stores).await?, None),
        JobCache::Shared(shared) => {
            let store = open_shared(shared, options, stores).await?;
            (Some(store), Some(shared.names.clone()))
        }
        JobCache::Elsewhere => (None, None),
    };
    let freezing = compiled.clauses.freezes();
    let setup = CacheSetup {
        store,
        compute_ps_per_row: u64::try_from(report.cached_row).unwrap_or(u64::MAX),
        reads: { config.epochs }.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        frozen: freezing.then(|| pass_key(config.seed, 0)),
        shared,
        is_elsewhere: matches!(config.cache, JobCache::Elsewhere),
    };
    Ok((setup.store.is_some() || freezing || setup.is_elsewhere).then_some(setup))
}

/// Opens the store of this process alone.
async fn own(dir: &str, options: CacheOptions, stores: &Stores) -> Result<Option<CacheStore>> {
    match stores.open(dir, options).await {
        Ok(store) => Ok(Some(store)),
        Err(error) => {
            let error = not_users(error)?;
            log::warn!("{error}; rows are computed without a cache");
            Ok(None)
        }
    }
}

/// Opens a store that other processes share.
async fn open_shared(
    shared: &SharedCache,
    options: CacheOptions,
    stores: &Stores,
) -> Result<CacheStore> {
    let SharedCache { dir, mark, .. } = shared;
    let not_shared = |cause: String| Error::Config(format!("cache_dir is not shared: {cause}"));
    let store = stores.existing(dir, options).await;
    let store = store.map_err(|error| not_shared(error.to_string()))?;
    let Some(store) = store else {
        return Err(not_shared(format!("there is no folder '{dir}'")));
    };
    let found = store.existing_mark().await;
    if found
        .map_err(|error| not_shared(error.to_string()))?
        .as_ref()
        == Some(mark)
    {
        return Ok(store);
    }
    Err(not_shared(format!(
        "'{dir}' is another folder than the one that the job's first worker has there"
    )))
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
