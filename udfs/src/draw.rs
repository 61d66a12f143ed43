//! Random draws that depend on the row, not on the order of evaluation.
//!
//! A draw is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
//! with a key derived from (seed, epoch, stream) and a counter derived from (row key hash, child,
//! block). A draw depends on nothing else: not on the thread, the batch, or the operators that ran
//! before.

use crate::hash::combine;

/// Returns the part of a draw's key that all draws of a pass (one traversal of the data in one
/// epoch) share: a hash of seed and epoch.
#[inline]
pub const fn pass_key(seed: u64, epoch: u64) -> u64 {
    combine(seed, epoch)
}

/// Computes one block of Philox 4x32-10: four 32-bit words at `counter` under `key`.
#[inline]
pub const fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < 10 {
        let p0 = 0xd251_1f53_u64 * counter[0] as u64;
        let p1 = 0xcd9e_8d57_u64 * counter[2] as u64;
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
        key = [
            key[0].wrapping_add(0x9e37_79b9),
            key[1].wrapping_add(0xbb67_ae85),
        ];
        round += 1;
    }
    counter
}

/// The sequence of draws of one operator's stream for one row.
#[derive(Debug, Clone)]
pub struct Draws {
    key: [u32; 2],
    counter: [u32; 4],
    words: [u32; 4],
    used: usize,
}

impl Draws {
    /// Creates the draws of `stream` for the row with the key hash `row_hash` and the child index
    /// `child`, in the pass with the key `pass` (see [`pass_key`]).
    #[inline]
    pub const fn new(pass: u64, stream: u64, row_hash: u64, child: u32) -> Self {
        let key = combine(pass, stream);
        Self {
            key: [key as u32, (key >> 32) as u32],
            counter: [0, child, row_hash as u32, (row_hash >> 32) as u32],
            words: [0; 4],
            used: 4,
        }
    }

    /// Draws 32 uniform bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.words = philox4x32_10(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        let word = self.words[self.used];
        self.used += 1;
        word
    }

    /// Draws 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32
    }

    /// Draws a number uniformly from `[0, 1)`, with 53 random bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Draws a number uniformly from `[low, high)`; returns `low` if the bounds are equal.
    #[inline]
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Draws `true` with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Draws a whole number uniformly from `0..n`, without bias (Lemire, "Fast random integer
    /// generation in an interval", 2019); returns 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// Draws a whole number uniformly from `0..=last`.
    #[inline]
    pub fn up_to(&mut self, last: usize) -> usize {
        self.below(last as u64 + 1) as usize
    }

    /// Draws from the standard normal distribution by the Box-Muller transform (1958), with
    /// `libm`'s functions, which return the same bits on every CPU.
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        radius * libm::cos(2.0 * std::f64::consts::PI * self.uniform())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares outputs with the test vectors of Random123 1.14 (`kat_vectors`, philox4x32 10).
    #[test]
    fn philox_matches_random123() {
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn below_is_unbiased_and_in_range() {
        let mut draws = Draws::new(1, 2, 3, 0);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[draws.below(6) as usize] += 1;
        }
        // Chi-square with 5 degrees of freedom; 25.7 is p = 1e-4.
        let chi: f64 = counts
            .iter()
            .map(|&c| (f64::from(c) - 1e4).powi(2) / 1e4)
            .sum();
        assert!(chi < 25.7, "{counts:?}");
        assert_eq!(draws.below(0), 0);
    }

    #[test]
    fn draws_depend_on_every_part_of_the_key_and_on_nothing_else() {
        let first = |pass, stream, hash, child| Draws::new(pass, stream, hash, child).next_u64();
        let base = first(1, 2, 3, 4);
        assert_eq!(base, first(1, 2, 3, 4));
        for other in [
            first(0, 2, 3, 4),
            first(1, 0, 3, 4),
            first(1, 2, 0, 4),
            first(1, 2, 3, 0),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn normal_has_unit_moments() {
        let mut draws = Draws::new(9, 9, 9, 0);
        let values: Vec<f64> = (0..40_000).map(|_| draws.normal()).collect();
        let mean = values.iter().sum::<f64>() / 4e4;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 4e4;
        assert!(
            mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03,
            "{mean} {variance}"
        );
    }
}
