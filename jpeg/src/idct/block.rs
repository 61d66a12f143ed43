//! Blocks of coefficients, and the rows of samples that they become.

/// A block of coefficients or samples, in rows of 8.
pub(crate) type CoefficientBlock = [i16; 64];

/// Rows of samples that blocks are written to.
#[derive(Debug)]
pub(crate) struct SampleTarget<'a> {
    /// Samples, from the first one of the first block.
    pub(crate) samples: &'a mut [u8],
    /// Distance between rows.
    pub(crate) stride: usize,
}

impl SampleTarget<'_> {
    /// Writes row `y` of block `block`.
    #[inline(always)]
    pub(super) fn set(&mut self, block: usize, y: usize, row: u64) {
        let at = y * self.stride + block * 8;
        if let Some(target) = self.samples.get_mut(at..at + 8) {
            target.copy_from_slice(&row.to_le_bytes());
        }
    }
}

/// Converts to 16 bits with saturation.
pub(super) fn saturate(value: i32) -> i16 {
    value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

/// Converts a result to a sample: 0 becomes 128.
pub(super) fn sample(value: i16) -> u8 {
    (value.clamp(-128, 127) + 128) as u8
}

/// Computes a block of one coefficient: every sample has the same value.
pub(super) fn fill(coefficient: i16, quantization: i16, block: usize, rows: &mut SampleTarget<'_>) {
    let value = coefficient.wrapping_mul(quantization);
    let first = saturate(((i32::from(value) << 13) + (1 << 10)) >> 11);
    let second = saturate(((i32::from(first) << 13) + (1 << 17)) >> 18);
    let sample = u64::from(sample(second));
    for y in 0..8 {
        rows.set(block, y, sample * 0x0101_0101_0101_0101);
    }
}
