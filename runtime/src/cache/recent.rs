//! Keeps recently read blocks in memory, decoded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;

/// Identifies a block by the name of its segment and the number of the block in that segment.
/// Segments are named by their contents, so one name never stands for two contents.
pub(super) type BlockId = (Arc<str>, usize);

/// Recently read blocks, the most recently read first, of at most `max_bytes` bytes in total.
#[derive(Debug)]
pub(super) struct Recent {
    max_bytes: usize,
    held: Mutex<HeldBlock>,
}

#[derive(Debug, Default)]
struct HeldBlock {
    blocks: VecDeque<(BlockId, RecordBatch, usize)>,
    bytes: usize,
}

impl Recent {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            held: Mutex::default(),
        }
    }

    pub(super) fn get(&self, id: &BlockId) -> Option<RecordBatch> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.blocks.iter().position(|(of, ..)| of == id)?;
        let found = held.blocks.remove(at)?;
        let batch = found.1.clone();
        held.blocks.push_front(found);
        Some(batch)
    }

    /// Keeps a block that takes `bytes` bytes of memory, and drops the least recently read blocks
    /// until all kept blocks take at most `max_bytes`.
    pub(super) fn keep(&self, id: BlockId, batch: &RecordBatch, bytes: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // A large block is not kept: such a block is often a single large row, so it is unlikely to
        // be read for another row.
        if bytes > self.max_bytes / 8 || held.blocks.iter().any(|(of, ..)| *of == id) {
            return;
        }
        held.blocks.push_front((id, batch.clone(), bytes));
        held.bytes += bytes;
        while held.bytes > self.max_bytes {
            let Some((.., gone)) = held.blocks.pop_back() else {
                break;
            };
            held.bytes -= gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn the_blocks_used_last_stay() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1; 100]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let recent = Recent::new(900);
        let id = |n| (Arc::from("s"), n);
        for n in 0..9 {
            recent.keep(id(n), &batch, 100);
        }
        assert!(recent.get(&id(0)).is_some());
        recent.keep(id(9), &batch, 100);
        let there: Vec<usize> = (0..10).filter(|&n| recent.get(&id(n)).is_some()).collect();
        assert_eq!(there, [0, 2, 3, 4, 5, 6, 7, 8, 9]);
        recent.keep(id(10), &batch, 500);
        assert!(recent.get(&id(10)).is_none());
    }
}
