//! Base-2 logarithms in whole 1024ths, so that a product of several factors is the same in every
//! order of the factors.

/// A base-2 logarithm in 1024ths: `Log2(1024)` stands for the number 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Log2(pub i32);

impl Log2 {
    /// The logarithm of `number`; 0 counts as 1.
    pub fn of(number: u64) -> Self {
        Self((libm::log2(number.max(1) as f64) * 1024.0) as i32)
    }

    /// Returns the number whose logarithm this is, at least 1.
    pub fn number(self) -> u128 {
        libm::exp2(f64::from(self.0.clamp(0, 100 * 1024)) / 1024.0) as u128
    }

    /// Returns the part whose logarithm this is, in whole percent; a part is at most the whole.
    pub fn percent(self) -> u64 {
        libm::round(libm::exp2(f64::from(self.0.min(0)) / 1024.0) * 100.0) as u64
    }

    /// The logarithm of a product: of the numbers whose logarithms are this and `factor`.
    pub const fn times(self, factor: Self) -> Self {
        Self(self.0.saturating_add(factor.0))
    }

    /// The logarithm of a quotient: of the numbers whose logarithms are this and `factor`.
    pub const fn over(self, factor: Self) -> Self {
        Self(self.0.saturating_sub(factor.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_in_whole_percent() {
        let part = |of: u64, whole: u64| Log2::of(of).over(Log2::of(whole)).percent();
        let parts = [
            part(1, 1),
            part(1, 3),
            part(1, 100),
            part(1, 1000),
            part(3, 1),
        ];
        assert_eq!(parts, [100, 33, 1, 0, 100]);
    }
}
