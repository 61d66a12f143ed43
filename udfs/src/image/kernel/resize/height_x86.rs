//! Resizing of the height of bytes with AVX2 and AVX-512.
//!
//! Rows are added two at a time: one instruction multiplies a sample of each by its weight, and adds the two products.

#![expect(unsafe_code, reason = "calls code for instructions that the machine was seen to have")]

use std::arch::x86_64::*;

use super::part::Part;
use super::vectors_x86::{load_256, load_512, store_256, store_512};
use crate::image::kernel::lanes::{Lanes, Width};

/// Adds rows of a part, each multiplied by its weight in fixed point with a number of bits after the point.
type AddRows = unsafe fn(Part<'_, u8>, &mut [u8], &[i16], u32);

/// Adds as many rows as there are weights, each multiplied by its weight. Returns false, with nothing done, without the
/// instructions, and for rows that are shorter than a vector.
pub(super) fn add_rows(
    lanes: Lanes,
    part: Part<'_, u8>,
    out: &mut [u8],
    weights: &[i16],
    precision: u32,
) -> bool {
    let add: AddRows = match (lanes.0, out.len()) {
        (Width::Baseline, _) | (_, ..32) => return false,
        (Width::Avx2, _) | (_, ..64) => add_avx2,
        (Width::Avx512, _) => add_avx512,
    };
    // SAFETY: lanes have instructions only of the machine that they were made on, AVX2 is among those of AVX-512's lanes, and
    // `add` was chosen by them.
    unsafe { add(part, out, weights, precision) };
    true
}

/// Returns the starts of vectors of `N` samples that cover `length` samples. The last one may overlap the one before it.
fn starts<const N: usize>(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by(N).map(move |x| x.min(length - N))
}

/// Returns the rows two at a time, each pair with its weights: the first in the low half, the second in the high half. A
/// last row without a partner comes twice, the second time with the weight 0.
fn pairs<'a>(
    part: Part<'a, u8>,
    weights: &[i16],
) -> impl Iterator<Item = (&'a [u8], &'a [u8], i32)> {
    weights.chunks(2).enumerate().map(move |(nth, pair)| {
        let (low, high) = (pair[0], pair.get(1).copied().unwrap_or(0));
        let weights = i32::from(high) << 16 | i32::from(low as u16);
        let y = 2 * nth;
        (part.row(y), part.row(y + pair.len() - 1), weights)
    })
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_avx512(part: Part<'_, u8>, out: &mut [u8], weights: &[i16], precision: u32) {
    let half = _mm512_set1_epi32(1 << (precision - 1));
    let shift = _mm_cvtsi32_si128(precision as i32);
    let zero = _mm512_setzero_si512();
    for x in starts::<64>(out.len()) {
        let mut sums = [half; 4];
        for (first, second, weights) in pairs(part, weights) {
            let weights = _mm512_set1_epi32(weights);
            let (first, second) = (load_512(&first[x..]), load_512(&second[x..]));
            // As with AVX2.
            let low = _mm512_unpacklo_epi8(first, second);
            let high = _mm512_unpackhi_epi8(first, second);
            let values = [
                _mm512_unpacklo_epi8(low, zero),
                _mm512_unpackhi_epi8(low, zero),
                _mm512_unpacklo_epi8(high, zero),
                _mm512_unpackhi_epi8(high, zero),
            ];
            for (sum, values) in sums.iter_mut().zip(values) {
                *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(values, weights));
            }
        }
        let [a, b, c, d] = sums;
        let low = _mm512_packs_epi32(_mm512_sra_epi32(a, shift), _mm512_sra_epi32(b, shift));
        let high = _mm512_packs_epi32(_mm512_sra_epi32(c, shift), _mm512_sra_epi32(d, shift));
        store_512(_mm512_packus_epi16(low, high), &mut out[x..]);
    }
}

#[target_feature(enable = "avx2")]
fn add_avx2(part: Part<'_, u8>, out: &mut [u8], weights: &[i16], precision: u32) {
    let half = _mm256_set1_epi32(1 << (precision - 1));
    let shift = _mm_cvtsi32_si128(precision as i32);
    let zero = _mm256_setzero_si256();
    for x in starts::<32>(out.len()) {
        let mut sums = [half; 4];
        for (first, second, weights) in pairs(part, weights) {
            let weights = _mm256_set1_epi32(weights);
            let (first, second) = (load_256(&first[x..]), load_256(&second[x..]));
            // Samples of the two rows alternate. Unpacking works on parts of 128 bits, and so does packing below, which
            // puts the samples in order again.
            let low = _mm256_unpacklo_epi8(first, second);
            let high = _mm256_unpackhi_epi8(first, second);
            let values = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sum, values) in sums.iter_mut().zip(values) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(values, weights));
            }
        }
        let [a, b, c, d] = sums;
        let low = _mm256_packs_epi32(_mm256_sra_epi32(a, shift), _mm256_sra_epi32(b, shift));
        let high = _mm256_packs_epi32(_mm256_sra_epi32(c, shift), _mm256_sra_epi32(d, shift));
        store_256(_mm256_packus_epi16(low, high), &mut out[x..]);
    }
}
