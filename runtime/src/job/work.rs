//! The measured work of a job, and its use of the cache.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::OpenJob;
use crate::fragment::NodeTotals;
use crate::segment::CacheUse;

/// The work of a job so far: metrics of its operators, and its reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWork {
    /// Metrics of each node of the fragment over all segments, root first.
    pub nodes: Vec<NodeTotals>,
    /// Time spent waiting for reads, summed over all segments.
    pub reading: Duration,
    /// Number of bytes read.
    pub read_bytes: u64,
}

impl JobWork {
    /// Adds work of the same job on another machine. Work of another plan is not added. The
    /// operators get the texts that they have on that machine.
    pub fn add(&mut self, other: &Self) {
        if self.nodes.len() != other.nodes.len() {
            return;
        }
        for (node, more) in self.nodes.iter_mut().zip(&other.nodes) {
            node.text.clone_from(&more.text);
            node.rows = node.rows.saturating_add(more.rows);
            node.bytes = node.bytes.saturating_add(more.bytes);
            node.wall = node.wall.saturating_add(more.wall);
            node.cpu = node.cpu.saturating_add(more.cpu);
        }
        self.reading = self.reading.saturating_add(other.reading);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
    }

    /// Adds the work of an operator above all others.
    pub fn add_above(&mut self, node: Option<NodeTotals>) {
        let Some(node) = node else {
            return;
        };
        for below in &mut self.nodes {
            below.depth += 1;
        }
        self.nodes.insert(0, node);
    }
}

impl OpenJob {
    /// Returns the work that this process did for the job so far.
    pub fn work(&self) -> JobWork {
        let (reading, read_bytes) = self.plan.reader.reading();
        JobWork {
            nodes: self.plan.reader.totals(),
            reading,
            read_bytes,
        }
    }

    /// Returns the memory that seek indexes take in this process, in bytes; `None` if the job uses none.
    pub fn seek_index_bytes(&self) -> Option<u64> {
        self.env().pool.seek_index_bytes()
    }

    /// Returns the numbers of rows at the cache point that this process had so far; `None` without a
    /// cache.
    pub fn cache_use(&self) -> Option<CacheUse> {
        let cached = self.plan.reader.cached.as_ref();
        cached.map(|cached| cached.counts())
    }

    /// Writes the rows that this process computed at the cache point, and holds in memory, to the
    /// cache.
    pub async fn publish(&self) {
        if let Some(cached) = &self.plan.reader.cached {
            cached.publish().await;
        }
    }

    /// Makes the rows visible that other processes had written to the cache when a client began to
    /// use `view`. Does nothing for a view that was seen before.
    pub async fn see_cache(&self, view: u64) {
        if let Some(cached) = &self.plan.reader.cached {
            cached.see(view).await;
        }
    }
}
