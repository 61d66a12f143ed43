//! Copies finished pixels past the caches.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "stores that pass the caches take pointers")
)]

use crate::buffer_pool::Recycled;

/// Size, in bytes, of an image from which its column outgrows the caches.
const LARGE: usize = 128 << 10;

/// Copies parts of an image to a column.
///
/// The column of a batch of large images does not fit in the caches. An ordinary store first reads the line of memory
/// that it changes, and evicts another one; a streaming store does neither (Intel 64 and IA-32 Architectures
/// Optimization Reference Manual, "Non-temporal store instructions").
#[derive(Debug)]
pub(super) struct StreamingCopy {
    passes_caches: bool,
}

impl StreamingCopy {
    /// Creates the copy of an image, which passes the caches if the image is large.
    pub(super) fn new<E>(image: &[E]) -> Self {
        Self {
            passes_caches: cfg!(target_arch = "x86_64") && size_of_val(image) >= LARGE,
        }
    }

    /// Copies a part, which has the length of its target. Parts that do not consist of whole vectors are stored as
    /// usual: the two kinds of stores impede each other in one line of memory.
    #[inline]
    pub(super) fn copy<E: Recycled>(&self, part: &[E], target: &mut [E]) {
        #[cfg(target_arch = "x86_64")]
        if self.passes_caches && x86::copy(part, target) {
            return;
        }
        target.copy_from_slice(part);
    }
}

impl Drop for StreamingCopy {
    /// Makes the stores visible to other threads before anything that this thread stores later.
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.passes_caches {
            // SAFETY: every x86-64 machine has the instruction.
            unsafe {
                std::arch::x86_64::_mm_sfence();
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    use crate::buffer_pool::Recycled;

    /// Copies elements with streaming stores; returns false, and copies nothing, if the elements are not whole vectors.
    #[inline]
    pub(super) fn copy<E: Recycled>(part: &[E], target: &mut [E]) -> bool {
        let is_whole = target.as_ptr().cast::<__m128i>().is_aligned()
            && size_of_val(target).is_multiple_of(size_of::<__m128i>());
        if !is_whole || part.len() != target.len() {
            return false;
        }
        for at in 0..size_of_val(target) / size_of::<__m128i>() {
            // SAFETY: both slices have the bytes of that many vectors, and `target` is aligned. The drop of
            // `StreamingCopy` ends with a fence.
            unsafe {
                let vector = _mm_loadu_si128(part.as_ptr().cast::<__m128i>().add(at));
                _mm_stream_si128(target.as_mut_ptr().cast::<__m128i>().add(at), vector);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_arrives() {
        let values: Vec<f32> = (0..LARGE / 2).map(|v| v as f32).collect();
        for passes_caches in [false, true] {
            let copy = StreamingCopy { passes_caches };
            for (start, length) in [
                (0, 0),
                (0, 3),
                (1, 2),
                (4, 100),
                (3, 4),
                (2, 1001),
                (0, LARGE / 2),
            ] {
                let mut target = vec![-1.0; LARGE / 2];
                let part = start..start + length;
                // The source is not aligned as the target is.
                let source = &values[LARGE / 2 - length..];
                copy.copy(source, &mut target[part.clone()]);
                assert_eq!(target[part.clone()], *source);
                assert!(
                    target[..start]
                        .iter()
                        .chain(&target[part.end..])
                        .all(|v| *v == -1.0)
                );
            }
        }
        let large = StreamingCopy::new(&values);
        assert_eq!(large.passes_caches, cfg!(target_arch = "x86_64"));
        assert!(!StreamingCopy::new(&values[..1000]).passes_caches);
    }
}
