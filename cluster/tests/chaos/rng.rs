//! Random numbers of a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns a number from `first` to `last`.
    pub(crate) fn range(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns a number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns one of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns a number between `first` and `last`, as often below as above their geometric mean.
    pub(crate) fn spread(&mut self, first: f64, last: f64) -> f64 {
        first * (last / first).powf(self.unit())
    }

    /// Returns a time between `first` and `last` milliseconds.
    pub(crate) fn millis(&mut self, first: f64, last: f64) -> Duration {
        Duration::from_secs_f64(self.spread(first, last) / 1000.0)
    }
}
