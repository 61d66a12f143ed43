//! Ranges of row numbers that follow one another.

/// Number of rows of a block, for each of which a range is stored.
const BLOCK_ROWS: u64 = 1024;

/// Ranges of numbers from 0 on, without gaps. A binary search over all ranges would take longer than reading a row, so
/// the search begins at the range that holds the first number of a block of numbers.
#[derive(Debug, Default)]
pub(super) struct RowRanges {
    /// First number of each range.
    starts: Vec<u64>,
    end: u64,
    /// The range that holds the first number of each block.
    blocks: Vec<u32>,
}

impl RowRanges {
    /// Appends a range of so many numbers, at least one.
    pub(super) fn push(&mut self, rows: u64) {
        let range = self.starts.len() as u32;
        self.starts.push(self.end);
        self.end += rows;
        let blocks = self.end.div_ceil(BLOCK_ROWS) as usize;
        self.blocks.resize(blocks, range);
    }

    /// Removes the ranges from the one with index `range` on.
    pub(super) fn truncate(&mut self, range: usize) {
        if let Some(&end) = self.starts.get(range) {
            self.starts.truncate(range);
            self.end = end;
            self.blocks.truncate(end.div_ceil(BLOCK_ROWS) as usize);
        }
    }

    /// Returns the number after the last range.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the range that holds a number, which must be below [`end`](Self::end), and the number's offset in it.
    #[inline]
    pub(super) fn find(&self, number: u64) -> (usize, usize) {
        let block = (number / BLOCK_ROWS) as usize;
        let first = self.blocks[block] as usize;
        let last = self
            .blocks
            .get(block + 1)
            .map_or(self.starts.len(), |&r| r as usize + 1);
        let range = first + self.starts[first..last].partition_point(|&start| start <= number) - 1;
        (range, (number - self.starts[range]) as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_is_found_in_its_range(
            removed in prop::collection::vec(1u64..3000, 0..5),
            kept in 0usize..6,
            lengths in prop::collection::vec(prop_oneof![1u64..4, 1000u64..1050, 1u64..9000], 1..60),
        ) {
            let mut ranges = RowRanges::default();
            removed.iter().for_each(|&rows| ranges.push(rows));
            ranges.truncate(kept);
            let kept = removed.iter().take(kept).copied();
            let lengths: Vec<u64> = kept.chain(lengths.iter().copied()).collect();
            lengths[ranges.starts.len()..].iter().for_each(|&rows| ranges.push(rows));
            prop_assert_eq!(ranges.end(), lengths.iter().sum::<u64>());
            let mut number = 0;
            for (range, &rows) in lengths.iter().enumerate() {
                for offset in 0..rows {
                    prop_assert_eq!(ranges.find(number), (range, offset as usize));
                    number += 1;
                }
            }
        }
    }
}
