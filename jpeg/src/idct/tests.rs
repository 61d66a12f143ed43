//! The inverse DCT at every level, on blocks of any coefficients.

use proptest::prelude::*;

use super::*;
use crate::simd::InstructionSet;

fn run(
    simd: InstructionSet,
    blocks: &[CoefficientBlock],
    quantization: &CoefficientBlock,
) -> Vec<u8> {
    let flat: Vec<bool> = blocks.iter().map(|b| b[1..] == [0; 63]).collect();
    let stride = blocks.len() * 8;
    let mut samples = vec![0; stride * 8];
    let mut rows = SampleTarget {
        samples: &mut samples,
        stride,
    };
    super::blocks(simd, blocks, &flat, quantization, &mut rows);
    samples
}

proptest! {
    #[test]
    fn levels_agree(
        coefficients in prop::collection::vec(any::<i16>(), 64 * 7),
        shift in 0u32..15,
        sparse in 1usize..64,
        quantization in prop::collection::vec(any::<i16>(), 64),
    ) {
        let mut blocks: Vec<CoefficientBlock> = coefficients
            .as_chunks::<64>().0.iter().map(|b| b.map(|c| c >> shift)).collect();
        for (i, block) in blocks.iter_mut().enumerate() {
            block[(sparse * i).min(64)..].fill(0);
        }
        let quantization: CoefficientBlock = std::array::from_fn(|i| quantization[i] >> (shift / 2));
        let expected = run(InstructionSet::SCALAR, &blocks, &quantization);
        for simd in InstructionSet::all() {
            prop_assert_eq!(&run(simd, &blocks, &quantization), &expected, "{:?}", simd);
        }
    }
}
