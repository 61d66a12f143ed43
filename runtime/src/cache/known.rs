//! What this process knows of an entry: its segments, and where each row is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use object_store::path::Path;

use super::index::{Found, Index, Slot};
use super::key::RowAddress;
use super::layout::{Block, Layout};

/// A segment whose index was read.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) name: Arc<str>,
    pub(super) path: Path,
    pub(super) bytes: u64,
    pub(super) blocks: Vec<Block>,
    /// Those that the filter dropped included.
    pub(super) rows: u64,
}

/// The segments that are known of, and their rows.
#[derive(Default)]
pub(super) struct Known {
    /// Segments, in the order in which they were learned of; `None` when they are gone.
    slots: Vec<Option<Arc<Segment>>>,
    names: HashMap<Arc<str>, Slot>,
    /// Tables of addresses, each at least twice as long as the next: adding a segment copies
    /// a row's address a logarithmic number of times.
    levels: Vec<Index>,
    /// Damaged segments that the manifest may still list.
    condemned: HashSet<String>,
}

impl Known {
    /// Adds a segment, once.
    pub(super) fn add(&mut self, segment: Segment, layout: &Layout) {
        // Clones of an entry may learn of it at once.
        if self.names.contains_key(&segment.name) {
            return;
        }
        let slot = self.slots.len() as Slot;
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

    /// Forgets what a manifest does not list.
    pub(super) fn keep_listed(&mut self, listed: &HashSet<&str>) {
        let mut gone: Vec<Arc<str>> = self.names.keys().cloned().collect();
        gone.retain(|name| !listed.contains(&**name));
        for name in gone {
            self.forget(&name);
        }
        self.condemned.retain(|name| listed.contains(name.as_str()));
    }

    /// Whether a listed segment has not been looked at yet.
    pub(super) fn is_new(&self, name: &str) -> bool {
        !self.names.contains_key(name) && !self.condemned.contains(name)
    }

    /// Notes that a segment is damaged; whether that is new.
    pub(super) fn condemn(&mut self, name: &str) -> bool {
        self.forget(name);
        self.condemned.insert(name.to_owned())
    }

    pub(super) fn condemned(&self) -> &HashSet<String> {
        &self.condemned
    }

    /// Notes that no manifest lists these damaged segments any more.
    pub(super) fn absolve(&mut self, names: &HashSet<String>) {
        self.condemned.retain(|name| !names.contains(name));
    }

    pub(super) fn segment(&self, slot: Slot) -> Option<&Arc<Segment>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn find(&self, address: RowAddress) -> Option<Found> {
        let mut found = self.levels.iter().filter_map(|level| level.find(address));
        found.find(|found| alive(&self.slots, found.slot))
    }

    /// Number of rows, those that the filter dropped included.
    pub(super) fn rows(&self) -> u64 {
        self.slots
            .iter()
            .flatten()
            .map(|segment| segment.rows)
            .sum()
    }

    /// Bytes of memory that the addresses take.
    pub(super) fn index_bytes(&self) -> usize {
        self.levels.iter().map(Index::bytes).sum()
    }
}

fn alive(slots: &[Option<Arc<Segment>>], slot: Slot) -> bool {
    slots.get(slot as usize).is_some_and(Option::is_some)
}
