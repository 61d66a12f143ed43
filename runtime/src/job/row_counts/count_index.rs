//! Index of row counts, which takes one bit per stored row if no stored row gives several output
//! rows.

/// Number of bits in a word.
const WORD: u64 = 64;

/// The number of output rows of each stored row, with prefix sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CountIndex {
    /// Each stored row gives one output row. The number is that of the stored rows.
    One(u64),
    /// Each stored row gives one output row or none.
    Bits {
        /// Bit `i mod 64` of word `i / 64` is set if stored row `i` gives an output row.
        words: Vec<u64>,
        /// Number of output rows of the stored rows before each word, and in total: one entry more
        /// than `words`.
        before: Vec<u64>,
    },
    /// Entry `i` is the total number of output rows of stored rows `0..i`.
    Many(Vec<u64>),
}

impl CountIndex {
    /// Builds the index from the counts of all stored rows. `shares` yields the counts of
    /// consecutive ranges of stored rows.
    pub(crate) fn of<'a>(shares: impl Iterator<Item = &'a [u32]> + Clone) -> Self {
        let rows = || shares.clone().flatten().copied();
        if rows().any(|given| given > 1) {
            let mut all = 0;
            let before = rows().map(|given| {
                all += u64::from(given);
                all
            });
            return Self::Many(std::iter::once(0).chain(before).collect());
        }
        let (mut words, mut before) = (Vec::new(), vec![0]);
        let (mut word, mut all) = (0_u64, 0);
        let mut close = |word: &mut u64| {
            all += u64::from(word.count_ones());
            words.push(std::mem::take(word));
            before.push(all);
        };
        let mut at = 0;
        for given in rows() {
            word |= u64::from(given) << at;
            at = (at + 1) % WORD;
            if at == 0 {
                close(&mut word);
            }
        }
        if at > 0 {
            close(&mut word);
        }
        Self::Bits { words, before }
    }

    /// Returns the number of output rows of the stored row with number `stored`.
    pub(crate) fn of_row(&self, stored: u64) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::Bits { words, .. } => {
                (words[(stored / WORD) as usize] >> (stored % WORD) & 1) as u32
            }
            Self::Many(before) => (before[stored as usize + 1] - before[stored as usize]) as u32,
        }
    }

    /// Returns the total number of output rows of the stored rows before number `stored`.
    pub(crate) fn before(&self, stored: u64) -> u64 {
        match self {
            Self::One(_) => stored,
            Self::Bits { words, before } => {
                let word = (stored / WORD) as usize;
                let below = words[word] & ((1 << (stored % WORD)) - 1);
                before[word] + u64::from(below.count_ones())
            }
            Self::Many(before) => before[stored as usize],
        }
    }

    /// Returns the total number of output rows of all stored rows.
    pub(crate) fn total(&self) -> u64 {
        match self {
            Self::One(rows) => *rows,
            Self::Bits { before, .. } | Self::Many(before) => {
                before.last().copied().unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The index returns the sums of the counts that it was built from, however the counts were
        /// divided into ranges.
        #[test]
        fn counts_are_sums(most in 1_u32..4, rows in prop::collection::vec(0_u32..4, 0..300), cut in 0_usize..300) {
            let rows: Vec<u32> = rows.iter().map(|given| given % (most + 1)).collect();
            let cut = cut.min(rows.len());
            let counts = CountIndex::of([&rows[..cut], &rows[cut..]].into_iter());
            prop_assert_eq!(matches!(counts, CountIndex::Many(_)), rows.iter().any(|&given| given > 1));
            let mut all = 0;
            for (stored, &given) in (0..).zip(&rows) {
                prop_assert_eq!((counts.of_row(stored), counts.before(stored)), (given, all));
                all += u64::from(given);
            }
            prop_assert_eq!(counts.total(), all);
        }
    }

    #[test]
    fn one_row_each_equals_the_general_index() {
        let (all, one) = (
            CountIndex::of([&[1; 130][..]].into_iter()),
            CountIndex::One(130),
        );
        for stored in 0..130 {
            assert_eq!(
                (all.of_row(stored), all.before(stored)),
                (one.of_row(stored), one.before(stored))
            );
        }
        assert_eq!(all.total(), one.total());
    }
}
