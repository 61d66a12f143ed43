//! Eviction of segments from a cache store with a quota.
//!
//! The benefit of a segment is the compute time that the segment saves per stored byte, halved for
//! every day without use of its key. Ranking items by cost over size is GreedyDual-Size (Cao and
//! Irani, "Cost-aware WWW proxy caching algorithms", 1997). In that algorithm, the benefit of the
//! last evicted item is a floor that ages the other items. Here time ages the segments, because
//! processes that share a directory share no floor. Moreover, a new segment is admitted only if
//! every segment evicted for it has less benefit. The cache therefore keeps the first rows of a
//! data set larger than the quota, whereas unconditional eviction would drop each row just before
//! the row is read again.

use std::collections::{HashMap, HashSet};

use super::error::CacheError;
use super::exclusive::Exclusive;
use super::key::CacheKey;
use super::manifest::EntryManifest;
use super::shard::ShardId;
use super::shared::StoreState;

/// Time in milliseconds for which the benefit of a key stays whole after the key's last use, so
/// that two running pipelines do not evict each other's segments in turn.
const IN_USE_MS: u64 = 3600 * 1000;

/// Time in milliseconds in which the benefit of an unused key halves.
const HALF_LIFE_MS: f64 = 24.0 * 3600.0 * 1000.0;

/// Maximum number of bytes that a segment adds to the manifest.
const ENTRY_BYTES: u64 = 1024;

/// Returns the saved picoseconds per stored byte, halved for every day by which `idle_ms`, the time
/// since the key's last use, exceeds an hour.
pub(super) fn benefit(saved_ps: u64, bytes: u64, idle_ms: u64) -> f64 {
    let age = idle_ms.saturating_sub(IN_USE_MS) as f64 / HALF_LIFE_MS;
    saved_ps as f64 / bytes.max(1) as f64 * (-age).exp2()
}

/// A segment that may be evicted.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    shard: ShardId,
    name: String,
    bytes: u64,
    benefit: f64,
}

/// Returns the segments of least benefit that together free `excess` bytes; `None` when all
/// segments with a benefit less than `below` together free fewer bytes.
fn victims(mut candidates: Vec<Candidate>, excess: u64, below: f64) -> Option<Vec<Candidate>> {
    candidates.retain(|candidate| candidate.benefit < below);
    // Ties are broken by name, so that processes that evict at the same time choose the same
    // segments.
    candidates.sort_by(|a, b| {
        a.benefit
            .total_cmp(&b.benefit)
            .then_with(|| a.name.cmp(&b.name))
    });
    let mut freed = 0u64;
    let enough = candidates.iter().position(|candidate| {
        freed = freed.saturating_add(candidate.bytes);
        freed >= excess
    })?;
    candidates.truncate(enough + 1);
    Some(candidates)
}

/// Makes room for a new segment of `key` by evicting segments of less benefit. Returns false when
/// the new segment does not fit. Then no segment was evicted, unless another process has used the
/// freed space.
pub(super) async fn make_room(
    shared: &StoreState,
    key: &CacheKey,
    bytes: u64,
    saved_ps: u64,
) -> Result<bool, CacheError> {
    let Some(quota) = shared.options.quota else {
        return Ok(true);
    };
    let needed = bytes.saturating_add(ENTRY_BYTES);
    if needed > quota {
        return Ok(false);
    }
    let below = benefit(saved_ps, bytes, 0);
    let mut busy = HashSet::new();
    loop {
        let used = shared.files.total_bytes().await?;
        let excess = used.saturating_add(needed).saturating_sub(quota);
        if excess == 0 {
            return Ok(true);
        }
        let candidates = candidates(shared, key, &busy).await?;
        let Some(victims) = victims(candidates, excess, below) else {
            return Ok(false);
        };
        evict(shared, victims, &mut busy).await?;
    }
}

/// Removes the segments `victims`. If another writer holds the shard of any of these segments, no
/// segment is removed, and that shard is added to `busy`.
async fn evict(
    shared: &StoreState,
    victims: Vec<Candidate>,
    busy: &mut HashSet<ShardId>,
) -> Result<(), CacheError> {
    let mut by_shard: HashMap<ShardId, HashSet<String>> = HashMap::new();
    for victim in victims {
        by_shard
            .entry(victim.shard)
            .or_default()
            .insert(victim.name);
    }
    let mut held = Vec::new();
    let mut all = true;
    for (shard, names) in by_shard {
        match Exclusive::acquire(&shared.files, &shard, shared.options.lease).await? {
            Some(exclusive) => held.push((exclusive, names)),
            None => {
                busy.insert(shard);
                all = false;
            }
        }
    }
    for (mut exclusive, names) in held {
        if all {
            exclusive.drop_segments(&names).await?;
        }
        if all && exclusive.manifest.segments.is_empty() {
            exclusive.remove().await?
        } else {
            exclusive.release().await
        }
    }
    Ok(())
}

/// Returns the segments of all shards that are not `busy`, except those of `own`, the key of the new
/// segment.
async fn candidates(
    shared: &StoreState,
    own: &CacheKey,
    busy: &HashSet<ShardId>,
) -> Result<Vec<Candidate>, CacheError> {
    let files = &shared.files;
    let mut candidates = Vec::new();
    for key in files.keys().await?.into_iter().filter(|key| key != own) {
        let idle = files
            .clock
            .unix_ms()
            .saturating_sub(files.last_used(&key).await);
        for shard in files.shards(&key).await? {
            if busy.contains(&shard) {
                continue;
            }
            let segments = EntryManifest::load(files, &shard).await?.manifest.segments;
            candidates.extend(segments.into_iter().map(|segment| Candidate {
                shard,
                benefit: benefit(segment.saved_ps, segment.bytes, idle),
                name: segment.name,
                bytes: segment.bytes,
            }));
        }
    }
    Ok(candidates)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 3600 * 1000;

    fn candidate(name: &str, bytes: u64, benefit: f64) -> Candidate {
        Candidate {
            shard: ShardId::first(CacheKey::new([0; 32])),
            name: name.to_owned(),
            bytes,
            benefit,
        }
    }

    #[test]
    fn benefit_is_time_per_byte_that_fades() {
        assert_eq!(benefit(1000, 10, 0), 100.0);
        assert_eq!(benefit(1000, 10, IN_USE_MS), 100.0);
        assert_eq!(benefit(1000, 10, IN_USE_MS + DAY_MS), 50.0);
        assert_eq!(benefit(1000, 10, IN_USE_MS + 3 * DAY_MS), 12.5);
        assert_eq!(benefit(0, 0, u64::MAX), 0.0);
        assert!(benefit(u64::MAX, 0, 0).is_finite());
    }

    #[test]
    fn the_least_benefit_goes_first_and_only_for_a_greater_one() {
        let all = vec![
            candidate("c", 10, 3.0),
            candidate("a", 10, 1.0),
            candidate("d", 10, 9.0),
            candidate("b", 10, 1.0),
        ];
        let names = |excess, below| {
            let chosen = victims(all.clone(), excess, below)?;
            Some(chosen.into_iter().map(|c| c.name).collect::<String>())
        };
        assert_eq!(names(1, 5.0).as_deref(), Some("a"));
        assert_eq!(names(11, 5.0).as_deref(), Some("ab"));
        assert_eq!(names(30, 5.0).as_deref(), Some("abc"));
        assert_eq!(names(31, 5.0), None);
        assert_eq!(names(1, 1.0), None);
    }
}
