//! How many rows each stored row gives: a bit for each where none gives several.

/// Bits of a word.
const WORD: u64 = 64;

/// How many rows each stored row gives, and how many come before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Counts {
    /// Each of so many gives one row.
    One(u64),
    /// Each gives one row, or none.
    Bits {
        /// Bit `i mod 64` of word `i / 64`: whether stored row `i` gives one.
        words: Vec<u64>,
        /// By word: rows that come before it. One more than there are words.
        before: Vec<u64>,
    },
    /// Entry `i` is the number of rows that stored rows `0..i` give.
    Many(Vec<u64>),
}

impl Counts {
    /// The counts of ranges of stored rows, in order.
    pub(super) fn of<'a>(shares: impl Iterator<Item = &'a [u32]> + Clone) -> Self {
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

    /// Rows that a stored row gives.
    pub(super) fn of_row(&self, stored: u64) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::Bits { words, .. } => {
                (words[(stored / WORD) as usize] >> (stored % WORD) & 1) as u32
            }
            Self::Many(before) => (before[stored as usize + 1] - before[stored as usize]) as u32,
        }
    }

    /// Rows that come before those of a stored row.
    pub(super) fn before(&self, stored: u64) -> u64 {
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

    /// Rows that all of them give.
    pub(super) fn total(&self) -> u64 {
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
        /// Counts are the sums of what was counted, however it was cut.
        #[test]
        fn counts_are_sums(most in 1_u32..4, rows in prop::collection::vec(0_u32..4, 0..300), cut in 0_usize..300) {
            let rows: Vec<u32> = rows.iter().map(|given| given % (most + 1)).collect();
            let cut = cut.min(rows.len());
            let counts = Counts::of([&rows[..cut], &rows[cut..]].into_iter());
            prop_assert_eq!(matches!(counts, Counts::Many(_)), rows.iter().any(|&given| given > 1));
            let mut all = 0;
            for (stored, &given) in (0..).zip(&rows) {
                prop_assert_eq!((counts.of_row(stored), counts.before(stored)), (given, all));
                all += u64::from(given);
            }
            prop_assert_eq!(counts.total(), all);
        }
    }

    #[test]
    fn one_each_is_arithmetic() {
        let (all, one) = (Counts::of([&[1; 130][..]].into_iter()), Counts::One(130));
        for stored in 0..130 {
            assert_eq!(
                (all.of_row(stored), all.before(stored)),
                (one.of_row(stored), one.before(stored))
            );
        }
        assert_eq!(all.total(), one.total());
    }
}
