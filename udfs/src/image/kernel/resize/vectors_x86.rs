//! Loads and stores of vectors of bytes.

#![expect(unsafe_code, reason = "pointers to slices whose lengths were checked")]

use std::arch::x86_64::*;

/// Loads the first 64 samples of a slice.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn load_512(samples: &[u8]) -> __m512i {
    let samples = &samples[..size_of::<__m512i>()];
    // SAFETY: the slice has the 64 bytes that are read; no alignment is needed.
    unsafe { _mm512_loadu_si512(samples.as_ptr().cast()) }
}

/// Stores to the first 64 samples of a slice.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn store_512(vector: __m512i, samples: &mut [u8]) {
    let samples = &mut samples[..size_of::<__m512i>()];
    // SAFETY: the slice has the 64 bytes that are written; no alignment is needed.
    unsafe { _mm512_storeu_si512(samples.as_mut_ptr().cast(), vector) }
}

/// Loads the first 32 samples of a slice.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_256(samples: &[u8]) -> __m256i {
    let samples = &samples[..size_of::<__m256i>()];
    // SAFETY: the slice has the 32 bytes that are read; no alignment is needed.
    unsafe { _mm256_loadu_si256(samples.as_ptr().cast()) }
}

/// Stores to the first 32 samples of a slice.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_256(vector: __m256i, samples: &mut [u8]) {
    let samples = &mut samples[..size_of::<__m256i>()];
    // SAFETY: the slice has the 32 bytes that are written; no alignment is needed.
    unsafe { _mm256_storeu_si256(samples.as_mut_ptr().cast(), vector) }
}
