//! A rectangle of samples in memory.

/// Rows of samples, which are a part of longer rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a, T> {
    samples: &'a [T],
    /// Number of samples from a row to the next.
    stride: usize,
    /// Number of samples of a row.
    pub(super) length: usize,
    /// Number of rows.
    pub(super) count: usize,
}

impl<'a, T> Part<'a, T> {
    /// Creates the part of `count` rows of `length` samples, of which the first begins at `start`. Consecutive rows
    /// begin `stride` samples apart.
    pub(super) fn new(
        samples: &'a [T],
        start: usize,
        stride: usize,
        length: usize,
        count: usize,
    ) -> Self {
        Self {
            samples: &samples[start..],
            stride,
            length,
            count,
        }
    }

    /// Returns the samples of a row.
    #[inline(always)]
    pub(super) fn row(&self, y: usize) -> &'a [T] {
        &self.samples[y * self.stride..][..self.length]
    }

    /// Returns the part from a row on.
    #[inline(always)]
    pub(super) fn from(&self, y: usize) -> Self {
        Self {
            samples: &self.samples[y * self.stride..],
            count: self.count - y,
            ..*self
        }
    }
}
