//! The inverse DCT without vector instructions.

use super::block::{CoefficientBlock, SampleTarget, sample, saturate};

/// Rotations of the algorithm as pairs of factors, in units of 2^-13.
pub(super) mod factors {
    /// Of coefficients 2 and 6.
    pub(in super::super) const EVEN: [(i16, i16); 2] = [(4433, -10_704), (10_703, 4433)];
    /// Of the sums of coefficients 7 and 3, and 5 and 1.
    pub(in super::super) const SUMS: [(i16, i16); 2] = [(-6436, 9633), (9633, 6437)];
    /// Of coefficients 7 and 1.
    pub(in super::super) const OUTER: [(i16, i16); 2] = [(-4927, -7373), (-7373, 4926)];
    /// Of coefficients 5 and 3.
    pub(in super::super) const INNER: [(i16, i16); 2] = [(-4176, -20_995), (-20_995, 4177)];
}

const fn rotate(a: i16, b: i16, factors: (i16, i16)) -> i32 {
    (a as i32 * factors.0 as i32).wrapping_add(b as i32 * factors.1 as i32)
}

/// Transforms 8 values, and divides the results by 2^shift, rounded.
fn transform(input: [i16; 8], shift: u32) -> [i16; 8] {
    let sum = i32::from(input[0].wrapping_add(input[4])) << 13;
    let difference = i32::from(input[0].wrapping_sub(input[4])) << 13;
    let low = rotate(input[2], input[6], factors::EVEN[0]);
    let high = rotate(input[2], input[6], factors::EVEN[1]);
    let even = [
        sum.wrapping_add(high),
        difference.wrapping_add(low),
        difference.wrapping_sub(low),
        sum.wrapping_sub(high),
    ];
    let (a, b) = (
        input[7].wrapping_add(input[3]),
        input[5].wrapping_add(input[1]),
    );
    let (third, fourth) = (
        rotate(a, b, factors::SUMS[0]),
        rotate(a, b, factors::SUMS[1]),
    );
    let odd = [
        rotate(input[7], input[1], factors::OUTER[1]).wrapping_add(fourth),
        rotate(input[5], input[3], factors::INNER[1]).wrapping_add(third),
        rotate(input[5], input[3], factors::INNER[0]).wrapping_add(fourth),
        rotate(input[7], input[1], factors::OUTER[0]).wrapping_add(third),
    ];
    let mut out = [0; 8];
    let round = |value: i32| saturate(value.wrapping_add(1 << (shift - 1)) >> shift);
    for i in 0..4 {
        out[i] = round(even[i].wrapping_add(odd[i]));
        out[7 - i] = round(even[i].wrapping_sub(odd[i]));
    }
    out
}

/// Computes a block.
pub(super) fn block(
    coefficients: &CoefficientBlock,
    quantization: &CoefficientBlock,
    at: usize,
    rows: &mut SampleTarget<'_>,
) {
    let mut columns = [0; 64];
    for x in 0..8 {
        let column =
            std::array::from_fn(|y| coefficients[y * 8 + x].wrapping_mul(quantization[y * 8 + x]));
        for (y, value) in transform(column, 11).into_iter().enumerate() {
            columns[y * 8 + x] = value;
        }
    }
    for y in 0..8 {
        let row = std::array::from_fn(|x| columns[y * 8 + x]);
        let samples = transform(row, 18).map(sample);
        rows.set(at, y, u64::from_le_bytes(samples));
    }
}
