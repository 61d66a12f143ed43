//! The rows of a split that remain after pruning.

use std::ops::Range;

/// A set of row offsets that answers rank queries. It is a bitmap of 64-bit words, each stored with
/// the number of set bits in the words before it (Jacobson, "Space-efficient static trees and
/// graphs", 1989, section 2).
#[derive(Debug, Clone, Default)]
pub(crate) struct RowBitmap {
    words: Vec<Word>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Word {
    members: u64,
    /// Number of set bits in the words before this word.
    before: u32,
}

impl RowBitmap {
    /// Creates the set of `offsets`, which must be in ascending order.
    pub(crate) fn new(offsets: impl IntoIterator<Item = u32>) -> Self {
        let mut kept = Self::default();
        for (before, offset) in (0_u32..).zip(offsets) {
            let word = offset as usize / 64;
            if word >= kept.words.len() {
                let members = 0;
                kept.words.resize(word + 1, Word { members, before });
            }
            kept.words[word].members |= 1 << (offset % 64);
        }
        kept
    }

    /// Returns the number of offsets in the set.
    pub(crate) fn len(&self) -> u64 {
        let last = self.words.last();
        last.map_or(0, |word| u64::from(word.before + word.members.count_ones()))
    }

    /// Returns the memory that the set takes, in bytes.
    pub(crate) fn memory_size(&self) -> usize {
        self.words.capacity() * size_of::<Word>()
    }

    /// Returns the number of offsets in the set that are below `offset`; `None` if `offset` is not
    /// in the set.
    pub(crate) fn rank(&self, offset: u32) -> Option<u64> {
        let word = self.words.get(offset as usize / 64)?;
        let bit = 1_u64 << (offset % 64);
        let before = word.before + (word.members & (bit - 1)).count_ones();
        (word.members & bit != 0).then_some(u64::from(before))
    }

    /// Iterates over the offsets of the set that lie in `range`, in ascending order.
    pub(crate) fn offsets(&self, range: Range<u32>) -> impl Iterator<Item = u32> {
        let first = (range.start / 64).min(self.words.len() as u32);
        let words = self.words[first as usize..].iter().zip(first..);
        let words = words.take_while(move |(_, at)| at * 64 < range.end);
        words.flat_map(move |(word, at)| {
            // The range may begin and end within a word.
            let below = |end: u32| match end.saturating_sub(at * 64) {
                bits @ 0..64 => (1_u64 << bits) - 1,
                _ => u64::MAX,
            };
            let mut members = word.members & below(range.end) & !below(range.start);
            std::iter::from_fn(move || {
                let bit = (members != 0).then(|| members.trailing_zeros())?;
                members &= members - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_the_number_of_rows_before() {
        for offsets in [
            vec![],
            vec![0],
            vec![63, 64, 65],
            vec![5, 200, 201, 640],
            (0..300).filter(|o| o % 7 != 3).collect(),
        ] {
            let kept = RowBitmap::new(offsets.iter().copied());
            for range in [0..u32::MAX, 0..64, 5..201, 64..65, 63..64, 70..70, 650..700] {
                let within = offsets.iter().filter(|offset| range.contains(offset));
                let within: Vec<u32> = within.copied().collect();
                assert_eq!(kept.offsets(range).collect::<Vec<_>>(), within);
            }
            assert_eq!(kept.len(), offsets.len() as u64);
            for offset in 0..700 {
                let place = offsets.binary_search(&offset).ok().map(|i| i as u64);
                assert_eq!(kept.rank(offset), place, "{offset} of {offsets:?}");
            }
        }
    }
}
