//! The inverse DCT with AVX2, two blocks at a time, and with AVX-512, four blocks at a time.
//!
//! Each 128-bit lane holds one block, so one sequence of lane-wise instructions serves both widths.

use std::arch::x86_64::*;

use super::block::{CoefficientBlock, SampleTarget, fill};
use super::scalar::factors;

/// Defines the transform of `$lanes` blocks in vectors of type `$vector`.
macro_rules! transform {
    (
        $name:ident, $pass:ident, $rotate:ident, $transpose:ident, $bytes:ident, $join:ident, $split:ident, $features:literal, $vector:ty, $shift:ty, $lanes:literal,
        $set32:ident, $mullo:ident, $add16:ident, $sub16:ident, $add32:ident, $sub32:ident, $madd:ident, $sra:ident,
        $lo8:ident, $hi8:ident, $lo16:ident, $hi16:ident, $lo32:ident, $hi32:ident, $lo64:ident, $hi64:ident,
        $packs32:ident, $packs16:ident, $xor:ident, $set8:ident, $zero:ident
    ) => {
        #[target_feature(enable = $features)]
        fn $rotate(a: ($vector, $vector), pair: (i16, i16)) -> ($vector, $vector) {
            let factors = $set32((pair.1 as i32) << 16 | (pair.0 as u16 as i32));
            ($madd(a.0, factors), $madd(a.1, factors))
        }

        /// Transforms the vectors, and divides the results by 2^`SHIFT`, rounded.
        #[target_feature(enable = $features)]
        fn $pass<const SHIFT: $shift>(input: [$vector; 8]) -> [$vector; 8] {
            let pair = |a: $vector, b: $vector| ($lo16(a, b), $hi16(a, b));
            let widen = |a: $vector| {
                let zero = $zero();
                ($sra::<3>($lo16(zero, a)), $sra::<3>($hi16(zero, a)))
            };
            let add =
                |a: ($vector, $vector), b: ($vector, $vector)| ($add32(a.0, b.0), $add32(a.1, b.1));
            let sub =
                |a: ($vector, $vector), b: ($vector, $vector)| ($sub32(a.0, b.0), $sub32(a.1, b.1));
            let sum = widen($add16(input[0], input[4]));
            let difference = widen($sub16(input[0], input[4]));
            let middle = pair(input[2], input[6]);
            let low = $rotate(middle, factors::EVEN[0]);
            let high = $rotate(middle, factors::EVEN[1]);
            let even = [
                add(sum, high),
                add(difference, low),
                sub(difference, low),
                sub(sum, high),
            ];
            let sums = pair($add16(input[7], input[3]), $add16(input[5], input[1]));
            let (third, fourth) = (
                $rotate(sums, factors::SUMS[0]),
                $rotate(sums, factors::SUMS[1]),
            );
            let (outer, inner) = (pair(input[7], input[1]), pair(input[5], input[3]));
            let odd = [
                add($rotate(outer, factors::OUTER[1]), fourth),
                add($rotate(inner, factors::INNER[1]), third),
                add($rotate(inner, factors::INNER[0]), fourth),
                add($rotate(outer, factors::OUTER[0]), third),
            ];
            let half = $set32(1 << (SHIFT - 1));
            let mut out = input;
            for i in 0..4 {
                let even = ($add32(even[i].0, half), $add32(even[i].1, half));
                let (first, last) = (add(even, odd[i]), sub(even, odd[i]));
                out[i] = $packs32($sra::<SHIFT>(first.0), $sra::<SHIFT>(first.1));
                out[7 - i] = $packs32($sra::<SHIFT>(last.0), $sra::<SHIFT>(last.1));
            }
            out
        }

        /// Swaps rows and columns of each lane.
        #[target_feature(enable = $features)]
        fn $transpose(r: [$vector; 8]) -> [$vector; 8] {
            let a = [
                $lo16(r[0], r[1]),
                $hi16(r[0], r[1]),
                $lo16(r[2], r[3]),
                $hi16(r[2], r[3]),
                $lo16(r[4], r[5]),
                $hi16(r[4], r[5]),
                $lo16(r[6], r[7]),
                $hi16(r[6], r[7]),
            ];
            let b = [
                $lo32(a[0], a[2]),
                $hi32(a[0], a[2]),
                $lo32(a[1], a[3]),
                $hi32(a[1], a[3]),
                $lo32(a[4], a[6]),
                $hi32(a[4], a[6]),
                $lo32(a[5], a[7]),
                $hi32(a[5], a[7]),
            ];
            [
                $lo64(b[0], b[4]),
                $hi64(b[0], b[4]),
                $lo64(b[1], b[5]),
                $hi64(b[1], b[5]),
                $lo64(b[2], b[6]),
                $hi64(b[2], b[6]),
                $lo64(b[3], b[7]),
                $hi64(b[3], b[7]),
            ]
        }

        /// Converts columns to rows of bytes, two rows in each lane of a vector.
        #[target_feature(enable = $features)]
        fn $bytes(c: [$vector; 8]) -> [$vector; 4] {
            let half = $set8(-128);
            let pack = |a, b| $xor($packs16(a, b), half);
            let (p, q, r, s) = (
                pack(c[0], c[4]),
                pack(c[1], c[5]),
                pack(c[2], c[6]),
                pack(c[3], c[7]),
            );
            let t = [$lo8(p, q), $hi8(p, q), $lo8(r, s), $hi8(r, s)];
            let u = [
                $lo16(t[0], t[2]),
                $hi16(t[0], t[2]),
                $lo16(t[1], t[3]),
                $hi16(t[1], t[3]),
            ];
            [
                $lo32(u[0], u[2]),
                $hi32(u[0], u[2]),
                $lo32(u[1], u[3]),
                $hi32(u[1], u[3]),
            ]
        }

        /// Computes the samples of blocks in groups of as many as vectors have lanes, and returns
        /// the number of blocks that were computed: all, or none of fewer than that.
        #[target_feature(enable = $features)]
        pub(super) fn $name(
            coefficients: &[CoefficientBlock],
            flat: &[bool],
            quantization: &CoefficientBlock,
            rows: &mut SampleTarget<'_>,
        ) -> usize {
            let (quantization, _) = quantization.as_chunks::<8>();
            let Some(last) = coefficients.len().checked_sub($lanes) else {
                return 0;
            };
            for at in (0..coefficients.len()).step_by($lanes) {
                // The last group computes some blocks again where a whole one is not left.
                let at = at.min(last);
                let group = &coefficients[at..at + $lanes];
                let flat = &flat[at..at + $lanes];
                if flat.iter().all(|&f| f) {
                    for (block, coefficients) in group.iter().enumerate() {
                        fill(coefficients[0], quantization[0][0], at + block, rows);
                    }
                } else {
                    let mut input = [$zero(); 8];
                    for (y, vector) in input.iter_mut().enumerate() {
                        let mut lanes = [_mm_setzero_si128(); $lanes];
                        for (lane, block) in lanes.iter_mut().zip(group) {
                            *lane = load(&block.as_chunks::<8>().0[y]);
                        }
                        let factors = $join([load(&quantization[y]); $lanes]);
                        *vector = $mullo($join(lanes), factors);
                    }
                    let columns = $transpose($pass::<11>(input));
                    let pairs = $bytes($pass::<18>(columns));
                    for (pair, vector) in pairs.into_iter().enumerate() {
                        for (lane, vector) in $split(vector).into_iter().enumerate() {
                            rows.set(at + lane, 2 * pair, _mm_cvtsi128_si64(vector) as u64);
                            rows.set(
                                at + lane,
                                2 * pair + 1,
                                _mm_extract_epi64::<1>(vector) as u64,
                            );
                        }
                    }
                }
            }
            coefficients.len()
        }
    };
}

transform!(
    blocks_avx2,
    pass_avx2,
    rotate_avx2,
    transpose_avx2,
    bytes_avx2,
    join2,
    split2,
    "avx2",
    __m256i,
    i32,
    2,
    _mm256_set1_epi32,
    _mm256_mullo_epi16,
    _mm256_add_epi16,
    _mm256_sub_epi16,
    _mm256_add_epi32,
    _mm256_sub_epi32,
    _mm256_madd_epi16,
    _mm256_srai_epi32,
    _mm256_unpacklo_epi8,
    _mm256_unpackhi_epi8,
    _mm256_unpacklo_epi16,
    _mm256_unpackhi_epi16,
    _mm256_unpacklo_epi32,
    _mm256_unpackhi_epi32,
    _mm256_unpacklo_epi64,
    _mm256_unpackhi_epi64,
    _mm256_packs_epi32,
    _mm256_packs_epi16,
    _mm256_xor_si256,
    _mm256_set1_epi8,
    _mm256_setzero_si256
);

transform!(
    blocks_avx512,
    pass_avx512,
    rotate_avx512,
    transpose_avx512,
    bytes_avx512,
    join4,
    split4,
    "avx512f,avx512bw",
    __m512i,
    u32,
    4,
    _mm512_set1_epi32,
    _mm512_mullo_epi16,
    _mm512_add_epi16,
    _mm512_sub_epi16,
    _mm512_add_epi32,
    _mm512_sub_epi32,
    _mm512_madd_epi16,
    _mm512_srai_epi32,
    _mm512_unpacklo_epi8,
    _mm512_unpackhi_epi8,
    _mm512_unpacklo_epi16,
    _mm512_unpackhi_epi16,
    _mm512_unpacklo_epi32,
    _mm512_unpackhi_epi32,
    _mm512_unpacklo_epi64,
    _mm512_unpackhi_epi64,
    _mm512_packs_epi32,
    _mm512_packs_epi16,
    _mm512_xor_si512,
    _mm512_set1_epi8,
    _mm512_setzero_si512
);

#[target_feature(enable = "avx2")]
fn load(row: &[i16; 8]) -> __m128i {
    // SAFETY: the row has the 16 bytes that are read, and the load needs no alignment.
    unsafe { _mm_loadu_si128(row.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn join2(lanes: [__m128i; 2]) -> __m256i {
    _mm256_set_m128i(lanes[1], lanes[0])
}

#[target_feature(enable = "avx2")]
fn split2(vector: __m256i) -> [__m128i; 2] {
    [
        _mm256_castsi256_si128(vector),
        _mm256_extracti128_si256::<1>(vector),
    ]
}

#[target_feature(enable = "avx512f,avx512bw")]
fn join4(lanes: [__m128i; 4]) -> __m512i {
    let low = _mm512_castsi256_si512(join2([lanes[0], lanes[1]]));
    _mm512_inserti64x4::<1>(low, join2([lanes[2], lanes[3]]))
}

#[target_feature(enable = "avx512f,avx512bw")]
fn split4(vector: __m512i) -> [__m128i; 4] {
    [
        _mm512_castsi512_si128(vector),
        _mm512_extracti32x4_epi32::<1>(vector),
        _mm512_extracti32x4_epi32::<2>(vector),
        _mm512_extracti32x4_epi32::<3>(vector),
    ]
}
