//! Copies finished pixels with stores that bypass the caches.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "streaming stores take pointers"))]

use crate::buffer_pool::Recycled;

/// Smallest image, in bytes, that bypasses the caches: the column of a batch of such images does not fit in them.
const LARGE: usize = 128 << 10;

/// Copies parts of an image to a column.
///
/// An ordinary store reads the cache line that it changes, and evicts another line. A streaming store does neither
/// (Intel 64 and IA-32 Architectures Optimization Reference Manual, "Non-temporal store instructions").
#[derive(Debug)]
pub(super) struct StreamingCopy {
    bypasses_caches: bool,
}

impl StreamingCopy {
    /// Creates the copy of an image. It bypasses the caches if the image is large.
    pub(super) fn new<E>(image: &[E]) -> Self {
        Self {
            bypasses_caches: cfg!(target_arch = "x86_64") && size_of_val(image) >= LARGE,
        }
    }

    /// Copies a part to a target of the same length. A part that is not made of whole vectors takes ordinary stores:
    /// mixing both kinds of stores in one cache line is slow.
    #[inline]
    pub(super) fn copy<E: Recycled>(&self, part: &[E], target: &mut [E]) {
        #[cfg(target_arch = "x86_64")]
        if self.bypasses_caches && x86::copy(part, target) {
            return;
        }
        target.copy_from_slice(part);
    }
}

impl Drop for StreamingCopy {
    /// Orders the streaming stores before all later stores of this thread.
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.bypasses_caches {
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
        for bypasses_caches in [false, true] {
            let copy = StreamingCopy { bypasses_caches };
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
        assert_eq!(large.bypasses_caches, cfg!(target_arch = "x86_64"));
        assert!(!StreamingCopy::new(&values[..1000]).bypasses_caches);
    }
}
