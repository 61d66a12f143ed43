//! The segments of a cache entry that this process knows, and an index of the rows in these
//! segments.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use object_store::path::Path;

use super::index::{FoundRow, Index, SegmentSlot};
use super::key::RowAddress;
use super::layout::{Block, SegmentLayout};
use super::shard::ShardId;

/// A segment whose index has been read.
#[derive(Debug)]
pub(super) struct KnownSegment {
    pub(super) name: Arc<str>,
    pub(super) shard: ShardId,
    pub(super) path: Path,
    pub(super) bytes: u64,
    pub(super) blocks: Vec<Block>,
    /// Number of rows, including those that the filter dropped.
    pub(super) rows: u64,
}

/// The segments of one entry that this process knows, and an index of their rows.
#[derive(Default)]
pub(super) struct Known {
    /// Segments, in the order in which this process learned of them; `None` for those that were
    /// forgotten.
    slots: Vec<Option<Arc<KnownSegment>>>,
    names: HashMap<Arc<str>, SegmentSlot>,
    /// Tables of row addresses. Each table is at least twice as long as the next, so that an
    /// address is copied only a logarithmic number of times while segments are added.
    levels: Vec<Index>,
    /// Names of damaged segments that the manifest of their shard may still list.
    condemned: HashMap<String, ShardId>,
}

impl Known {
    /// Adds `segment`, unless a segment of the same name is known already.
    pub(super) fn add(&mut self, segment: KnownSegment, layout: &SegmentLayout) {
        // Two clones of an entry may add the same segment.
        if self.names.contains_key(&segment.name) {
            return;
        }
        let slot = self.slots.len() as SegmentSlot;
        self.names.insert(Arc::clone(&segment.name), slot);
        self.slots.push(Some(Arc::new(segment)));
        self.levels.push(Index::new(slot, &layout.runs));
        while let [.., longer, last] = self.levels.as_slice()
            && longer.len() < 2 * last.len()
        {
            let merged = longer.merged(last, |slot| alive(&self.slots, slot));
            self.levels.truncate(self.levels.len() - 2);
            self.levels.push(merged);
        }
    }

    /// Forgets a segment and its rows.
    pub(super) fn forget(&mut self, name: &str) {
        if let Some(slot) = self.names.remove(name)
            && let Some(segment) = self.slots.get_mut(slot as usize)
        {
            *segment = None;
        }
    }

    /// Forgets the segments that are not in `listed`, the names in all manifests.
    pub(super) fn keep_listed(&mut self, listed: &HashSet<&str>) {
        let mut gone: Vec<Arc<str>> = self.names.keys().cloned().collect();
        gone.retain(|name| !listed.contains(&**name));
        for name in gone {
            self.forget(&name);
        }
        self.condemned
            .retain(|name, _| listed.contains(name.as_str()));
    }

    /// True when the segment `name`, which a manifest lists, is neither known nor recorded as
    /// damaged. Its index then has to be read.
    pub(super) fn is_new(&self, name: &str) -> bool {
        !self.names.contains_key(name) && !self.condemned.contains_key(name)
    }

    /// Records that the segment `name` of `shard` is damaged. Returns true when the damage was not
    /// recorded before.
    pub(super) fn condemn(&mut self, shard: ShardId, name: &str) -> bool {
        self.forget(name);
        self.condemned.insert(name.to_owned(), shard).is_none()
    }

    /// Returns the names of the damaged segments that the manifest of `shard` may still list.
    pub(super) fn condemned(&self, shard: &ShardId) -> HashSet<String> {
        let condemned = self.condemned.iter().filter(|(_, of)| *of == shard);
        condemned.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the shards whose manifests may still list damaged segments.
    pub(super) fn condemned_shards(&self) -> BTreeSet<ShardId> {
        self.condemned.values().copied().collect()
    }

    /// Records that no manifest lists the damaged segments `names` any more.
    pub(super) fn absolve(&mut self, names: &HashSet<String>) {
        self.condemned.retain(|name, _| !names.contains(name));
    }

    pub(super) fn segment(&self, slot: SegmentSlot) -> Option<&Arc<KnownSegment>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn find(&self, address: RowAddress) -> Option<FoundRow> {
        let mut found = self.levels.iter().filter_map(|level| level.find(address));
        found.find(|found| alive(&self.slots, found.slot))
    }

    /// Returns the number of rows in all known segments, including rows that the filter dropped.
    pub(super) fn rows(&self) -> u64 {
        self.slots
            .iter()
            .flatten()
            .map(|segment| segment.rows)
            .sum()
    }

    /// Returns the memory that the index of row addresses takes, in bytes.
    pub(super) fn index_bytes(&self) -> usize {
        self.levels.iter().map(Index::bytes).sum()
    }
}

fn alive(slots: &[Option<Arc<KnownSegment>>], slot: SegmentSlot) -> bool {
    slots.get(slot as usize).is_some_and(Option::is_some)
}
