//! Chooses the code for the instructions of the machine.

use super::block::{CoefficientBlock, SampleTarget, fill};
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::simd::{InstructionSet, Level};

/// Computes the samples of a row of blocks. `flat` is true for blocks without AC coefficients.
pub(crate) fn blocks(
    simd: InstructionSet,
    coefficients: &[CoefficientBlock],
    flat: &[bool],
    quantization: &CoefficientBlock,
    rows: &mut SampleTarget<'_>,
) {
    let mut at = 0;
    #[cfg(target_arch = "x86_64")]
    {
        if simd.level() == Level::Avx512 {
            // SAFETY: `InstructionSet` values exist only where the machine has their instructions.
            at = unsafe { x86::blocks_avx512(coefficients, flat, quantization, rows) };
        }
        if at == 0 && simd.level() >= Level::Avx2 {
            // SAFETY: as above.
            at = unsafe { x86::blocks_avx2(coefficients, flat, quantization, rows) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = simd;
    while at < coefficients.len() {
        if flat[at] {
            fill(coefficients[at][0], quantization[0], at, rows);
        } else {
            scalar::block(&coefficients[at], quantization, at, rows);
        }
        at += 1;
    }
}
