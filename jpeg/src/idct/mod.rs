//! The inverse DCT of libjpeg's accurate integer method (`jidctint.c`), bit for bit.
//!
//! The algorithm is that of Loeffler, Ligtenberg and Moschytz, "Practical fast 1-D DCT algorithms
//! with 11 multiplications" (ICASSP 1989), in fixed point with 13 bits. Where coefficients of
//! damaged files overflow, 16-bit sums wrap and 16-bit results saturate, as in libjpeg-turbo's vector
//! code, but for its shortcut for blocks without coefficients below the first row, which wraps.

mod block;
mod scalar;
mod transform;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use self::block::{CoefficientBlock, SampleTarget};
pub(crate) use self::transform::blocks;

#[cfg(test)]
mod tests;
