//! Ensures that only one process at a time changes a shard of a cache entry.
//!
//! A directory has a lock file per shard, locked by the operating system, which releases the lock
//! when the process dies. Lock files are never removed: removing a file that another process is
//! about to lock would let two processes hold the lock. An object store has a lease per shard: an
//! object that only one process can create. A lease states when it expires. After that time another
//! process may take over the lease, so the clocks of the machines must differ by less than the
//! duration of a lease.

use std::fs::{File, TryLockError};
use std::time::Duration;

use object_store::{Error as StoreError, PutMode, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use super::error::CacheError;
use super::files::{Files, SMALL, Unreadable};
use super::key::{fresh, hex};
use super::shard::ShardId;

/// The exclusive right to change a shard.
#[derive(Debug)]
pub(super) enum Guard {
    /// A locked file; closing the file unlocks it.
    Lock { _file: File },
    /// A lease in an object store.
    Lease {
        owner: String,
        version: UpdateVersion,
        expires_ms: u64,
        term: Duration,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Lease {
    owner: String,
    expires_ms: u64,
}

impl Guard {
    /// Acquires the right to change `shard`; `None` when another writer holds the right.
    /// `term` is the duration of a lease.
    pub(super) async fn acquire(
        files: &Files,
        shard: &ShardId,
        term: Duration,
    ) -> Result<Option<Self>, CacheError> {
        match &files.directory {
            Some(directory) => lock(&directory.join("locks"), shard),
            None => take_lease(files, shard, term).await,
        }
    }

    /// Checks that this process still holds the right, and renews a lease that expires soon.
    pub(super) async fn confirm(
        &mut self,
        files: &Files,
        shard: &ShardId,
    ) -> Result<(), CacheError> {
        let Self::Lease {
            owner,
            version,
            expires_ms,
            term,
        } = self
        else {
            return Ok(());
        };
        let now = files.clock.unix_ms();
        if now.saturating_add(term.as_millis() as u64 * 2 / 3) < *expires_ms {
            return Ok(());
        }
        let until = now.saturating_add(term.as_millis() as u64);
        let mode = PutMode::Update(version.clone());
        let path = files.lease(shard);
        match files.try_put(&path, lease(owner, until)?, mode).await {
            Ok(renewed) => {
                (*version, *expires_ms) = (renewed, until);
                Ok(())
            }
            Err(StoreError::Precondition { .. } | StoreError::NotFound { .. }) => {
                Err(CacheError::LeaseLost { key: shard.key })
            }
            Err(error) => Err(files.failed("write", &path, &error)),
        }
    }

    /// Releases the right to change the shard. A lease that cannot be removed expires later.
    pub(super) async fn release(self, files: &Files, shard: &ShardId) {
        let Self::Lease { owner, .. } = self else {
            return;
        };
        let path = files.lease(shard);
        let held = files.read_small(&path, SMALL).await.ok().flatten();
        let held = held.and_then(|(bytes, _)| serde_json::from_slice::<Lease>(&bytes).ok());
        if held.is_some_and(|lease| lease.owner == owner)
            && let Err(error) = files.delete(&path).await
        {
            log::debug!("{error}");
        }
    }
}

fn lock(folder: &std::path::Path, shard: &ShardId) -> Result<Option<Guard>, CacheError> {
    let path = folder.join(shard.to_string());
    let failed = |error| CacheError::system("lock", &path, error);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Guard::Lock { _file: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

async fn take_lease(
    files: &Files,
    shard: &ShardId,
    term: Duration,
) -> Result<Option<Guard>, CacheError> {
    let path = files.lease(shard);
    let owner = hex(&fresh(&*files.clock));
    let now = files.clock.unix_ms();
    let expires_ms = now.saturating_add(term.as_millis() as u64);
    let mode = match files.read_small(&path, SMALL).await {
        Ok(None) => PutMode::Create,
        Ok(Some((bytes, version))) => match serde_json::from_slice::<Lease>(&bytes) {
            Ok(held)
                if held.expires_ms > now && held.expires_ms <= now.saturating_add(MAX_TERM_MS) =>
            {
                return Ok(None);
            }
            // The lease has expired, is malformed, or states an expiry too far in the future.
            _ => PutMode::Update(version),
        },
        Err(Unreadable::Damaged(cause)) => {
            log::warn!("the lease '{path}' is damaged ({cause}): remove it");
            return Ok(None);
        }
        Err(Unreadable::Failed(error)) => return Err(error),
    };
    match files.try_put(&path, lease(&owner, expires_ms)?, mode).await {
        Ok(version) => Ok(Some(Guard::Lease {
            owner,
            version,
            expires_ms,
            term,
        })),
        // Another process took the lease first.
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(None),
        Err(error) => Err(files.failed("write", &path, &error)),
    }
}

/// Maximum duration of a lease, in milliseconds. A lease that states a longer remaining time counts
/// as free.
const MAX_TERM_MS: u64 = 24 * 3600 * 1000;

fn lease(owner: &str, expires_ms: u64) -> Result<PutPayload, CacheError> {
    let lease = Lease {
        owner: owner.to_owned(),
        expires_ms,
    };
    let bytes = serde_json::to_vec(&lease).map_err(|e| CacheError::Invariant(e.to_string()))?;
    Ok(bytes.into())
}
