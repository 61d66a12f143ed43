//! Resizing of the width of bytes with AVX2 and AVX-512.
//!
//! Sixteen rows at a time are turned into columns, so that one instruction computes a sample of all rows.

#![expect(
    unsafe_code,
    reason = "loads and stores of vectors, and code for instructions that the machine was seen to have"
)]

use std::arch::x86_64::*;

use super::filter::FilterWeights;
use super::part::Part;
use super::row_buffers::RowBuffers;
use super::vectors_x86::{load_256, store_256};
use crate::image::kernel::lanes::{Lanes, Width};

/// Number of rows that are resized at a time.
const ROWS: usize = 16;

/// Number of samples of a row that are turned at a time.
const BLOCK: usize = 32;

/// Resizes the width of bytes. Returns false, with nothing done, without the instructions, and for images of fewer rows or
/// shorter rows than are handled at a time.
pub(super) fn resize_width(
    lanes: Lanes,
    part: Part<'_, u8>,
    out: &mut [u8],
    channels: usize,
    weights: &FilterWeights,
    buffers: &mut RowBuffers,
) -> bool {
    let length = out.len() / part.count;
    if part.count < ROWS || part.length < BLOCK || length < BLOCK {
        return false;
    }
    let add: unsafe fn(&FilterWeights, &mut RowBuffers) = match (lanes.0, channels) {
        (Width::Baseline, _) => return false,
        (Width::Avx2, 1) => add_avx2::<1>,
        (Width::Avx2, _) => add_avx2::<3>,
        (Width::Avx512, 1) => add_avx512::<1>,
        (Width::Avx512, _) => add_avx512::<3>,
    };
    buffers.source.resize(part.length, [0; ROWS]);
    buffers.target.resize(length, [0; ROWS]);
    let mut y = 0;
    while y < part.count {
        // The last rows are resized again with those before them.
        y = y.min(part.count - ROWS);
        let (rows, out) = (part.from(y), &mut out[y * length..(y + ROWS) * length]);
        // SAFETY: lanes have instructions only of the machine that they were made on, all but the baseline have AVX2,
        // and `add` was chosen by them.
        unsafe {
            turn_rows(rows, &mut buffers.source);
            add(weights, buffers);
            turn_columns(&buffers.target, out);
        }
        y += ROWS;
    }
    true
}

/// Computes the target's columns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_avx512<const CHANNELS: usize>(weights: &FilterWeights, buffers: &mut RowBuffers) {
    let (source, _) = buffers.source.as_chunks::<CHANNELS>();
    let (target, _) = buffers.target.as_chunks_mut::<CHANNELS>();
    let (windows, precision) = weights.fixed();
    let half = _mm512_set1_epi32(1 << (precision - 1));
    let shift = _mm_cvtsi32_si128(precision as i32);
    for (out, (first, weights)) in target.iter_mut().zip(windows) {
        let mut sums = [half; CHANNELS];
        for (pixel, &weight) in source[first..].iter().zip(weights) {
            let weight = _mm512_set1_epi32(i32::from(weight));
            for (sum, values) in sums.iter_mut().zip(pixel) {
                // A value and a weight are the low halves of their 32 bits, so the sum of two products is one of them.
                let product = _mm512_madd_epi16(_mm512_cvtepu8_epi32(load(values)), weight);
                *sum = _mm512_add_epi32(*sum, product);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            let rounded = _mm512_max_epi32(_mm512_sra_epi32(sum, shift), _mm512_setzero_si512());
            store(_mm512_cvtusepi32_epi8(rounded), out);
        }
    }
}

/// Computes the target's columns.
#[target_feature(enable = "avx2")]
fn add_avx2<const CHANNELS: usize>(weights: &FilterWeights, buffers: &mut RowBuffers) {
    let (source, _) = buffers.source.as_chunks::<CHANNELS>();
    let (target, _) = buffers.target.as_chunks_mut::<CHANNELS>();
    let (windows, precision) = weights.fixed();
    let half = _mm256_set1_epi32(1 << (precision - 1));
    let shift = _mm_cvtsi32_si128(precision as i32);
    for (out, (first, weights)) in target.iter_mut().zip(windows) {
        let mut sums = [[half; 2]; CHANNELS];
        for (pixel, &weight) in source[first..].iter().zip(weights) {
            let weight = _mm256_set1_epi32(i32::from(weight));
            for ([low, high], values) in sums.iter_mut().zip(pixel) {
                let values = load(values);
                // As with AVX-512.
                let product = _mm256_madd_epi16(_mm256_cvtepu8_epi32(values), weight);
                *low = _mm256_add_epi32(*low, product);
                let values = _mm_srli_si128::<8>(values);
                let product = _mm256_madd_epi16(_mm256_cvtepu8_epi32(values), weight);
                *high = _mm256_add_epi32(*high, product);
            }
        }
        for (out, [low, high]) in out.iter_mut().zip(sums) {
            let (low, high) = (_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
            // Packing saturates, and works on halves of the vectors, which are put in order again.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
            let high = _mm256_extracti128_si256::<1>(words);
            store(_mm_packus_epi16(_mm256_castsi256_si128(words), high), out);
        }
    }
}

/// Calls a closure with 0 to 15, and returns the results. (`array::from_fn` is compiled without the instructions of its
/// caller.)
macro_rules! all {
    ($of:ident) => {
        [
            $of(0),
            $of(1),
            $of(2),
            $of(3),
            $of(4),
            $of(5),
            $of(6),
            $of(7),
            $of(8),
            $of(9),
            $of(10),
            $of(11),
            $of(12),
            $of(13),
            $of(14),
            $of(15),
        ]
    };
}

/// Turns sixteen rows into columns.
#[target_feature(enable = "avx2")]
fn turn_rows(rows: Part<'_, u8>, columns: &mut [[u8; ROWS]]) {
    let mut x = 0;
    while x < columns.len() {
        // The last block is turned again with samples before it.
        x = x.min(columns.len() - BLOCK);
        let row = |y: usize| load_256(&rows.row(y)[x..]);
        let block = turn(all!(row));
        let (low, high) = columns[x..x + BLOCK].split_at_mut(BLOCK / 2);
        for ((block, low), high) in block.into_iter().zip(low).zip(high) {
            store(_mm256_castsi256_si128(block), low);
            store(_mm256_extracti128_si256::<1>(block), high);
        }
        x += BLOCK;
    }
}

/// Turns columns into sixteen rows.
#[target_feature(enable = "avx2")]
fn turn_columns(columns: &[[u8; ROWS]], rows: &mut [u8]) {
    let length = columns.len();
    let mut x = 0;
    while x < length {
        x = x.min(length - BLOCK);
        let (low, high) = columns[x..x + BLOCK].split_at(BLOCK / 2);
        let pair = |i: usize| _mm256_set_m128i(load(&high[i]), load(&low[i]));
        let block = turn(all!(pair));
        for (row, block) in rows.chunks_exact_mut(length).zip(block) {
            store_256(block, &mut row[x..]);
        }
        x += BLOCK;
    }
}

/// Swaps rows and columns of two blocks of 16 x 16 bytes, one in each half of the vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn turn(rows: [__m256i; 16]) -> [__m256i; 16] {
    interleave(interleave(interleave(interleave(rows))))
}

/// Interleaves each of the first eight vectors with the one eight places after it. Four times that moves the four bits
/// of a row's number to the place of the four bits of a column's number, and vice versa.
#[inline]
#[target_feature(enable = "avx2")]
fn interleave(r: [__m256i; 16]) -> [__m256i; 16] {
    let low = |i: usize| _mm256_unpacklo_epi8(r[i], r[i + 8]);
    let high = |i: usize| _mm256_unpackhi_epi8(r[i], r[i + 8]);
    [
        low(0),
        high(0),
        low(1),
        high(1),
        low(2),
        high(2),
        low(3),
        high(3),
        low(4),
        high(4),
        low(5),
        high(5),
        low(6),
        high(6),
        low(7),
        high(7),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(values: &[u8; ROWS]) -> __m128i {
    // SAFETY: the array has the 16 bytes that are read; no alignment is needed.
    unsafe { _mm_loadu_si128(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(vector: __m128i, values: &mut [u8; ROWS]) {
    // SAFETY: the array has the 16 bytes that are written; no alignment is needed.
    unsafe { _mm_storeu_si128(values.as_mut_ptr().cast(), vector) }
}
