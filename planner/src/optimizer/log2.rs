//! Base-2 logarithms in whole 1024ths of an octave, so that products of factors do not depend on
//! their order.

/// A base-2 logarithm in 1024ths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Log2(pub i32);

impl Log2 {
    /// The logarithm of a whole number; 0 counts as 1.
    pub fn of(number: u64) -> Self {
        Self((libm::log2(number.max(1) as f64) * 1024.0) as i32)
    }

    /// Returns the number of which this is the logarithm, at least 1.
    pub fn number(self) -> u128 {
        libm::exp2(f64::from(self.0.clamp(0, 100 * 1024)) / 1024.0) as u128
    }

    /// Multiplies by `factor`, by adding logarithms.
    pub const fn times(self, factor: Self) -> Self {
        Self(self.0.saturating_add(factor.0))
    }

    /// Divides by `factor`, by subtracting logarithms.
    pub const fn over(self, factor: Self) -> Self {
        Self(self.0.saturating_sub(factor.0))
    }
}
