//! Interpolates subsampled components as libjpeg does (`jdsample.c`), bit for bit: "fancy"
//! triangle filters for factors of 2, and repeated samples for others.

use crate::simd::{InstructionSet, Level};

/// The method for a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upsampling {
    /// A sample for each pixel.
    None,
    /// Triangle filter along rows.
    Across,
    /// Triangle filter along columns.
    Down,
    /// Triangle filter along both.
    Both,
    /// Each sample is repeated this many times along rows and columns.
    Repeat(usize, usize),
}

impl Upsampling {
    /// Returns the method for a component of this width whose samples cover `h` x `v` pixels. Rows
    /// of at most two samples are not interpolated along rows (`jinit_upsampler`).
    pub(crate) const fn of(h: usize, v: usize, width: usize) -> Self {
        match (h, v) {
            (1, 1) => Self::None,
            (2, 1) if width > 2 => Self::Across,
            (1, 2) => Self::Down,
            (2, 2) if width > 2 => Self::Both,
            _ => Self::Repeat(h, v),
        }
    }

    /// Number of samples that a sample's pixels depend on, to each side along rows and columns.
    pub(crate) const fn reach(self) -> (usize, usize) {
        match self {
            Self::None | Self::Repeat(..) => (0, 0),
            Self::Across => (1, 0),
            Self::Down => (0, 1),
            Self::Both => (1, 1),
        }
    }
}

/// Rows of a component around one row of pixels, all from the sample before the first one that is
/// covered to the sample after the last one. At the image's border, that sample is the border's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleRows<'a> {
    /// The row that covers the pixels.
    pub(crate) near: &'a [u8],
    /// The other row that the pixels depend on.
    pub(crate) far: &'a [u8],
    /// True if the other row is below.
    pub(crate) is_below: bool,
}

/// Computes the pixels that whole samples cover: `out` has two pixels for each sample between the
/// outer ones. `sums` is scratch.
pub(crate) fn across(simd: InstructionSet, near: &[u8], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if simd.level() >= Level::Avx2 {
        // SAFETY: a set at this level exists only where the machine has AVX2.
        return unsafe { across_avx2(near, out) };
    }
    let _ = (simd, Level::Scalar);
    across_row(near, out);
}

/// As [`across`], for components that are halved along columns, too.
pub(crate) fn both(
    simd: InstructionSet,
    rows: SampleRows<'_>,
    sums: &mut Vec<u16>,
    out: &mut [u8],
) {
    sums.clear();
    sums.resize(rows.near.len(), 0);
    #[cfg(target_arch = "x86_64")]
    if simd.level() >= Level::Avx2 {
        // SAFETY: a set at this level exists only where the machine has AVX2.
        return unsafe { both_avx2(rows, sums, out) };
    }
    both_row(rows, sums, out);
}

/// Computes the pixels of a component that is halved along columns; `out` is as long as the rows.
pub(crate) fn down(simd: InstructionSet, rows: SampleRows<'_>, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if simd.level() >= Level::Avx2 {
        // SAFETY: a set at this level exists only where the machine has AVX2.
        return unsafe { down_avx2(rows, out) };
    }
    let _ = simd;
    down_row(rows, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn across_avx2(near: &[u8], out: &mut [u8]) {
    across_row(near, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn both_avx2(rows: SampleRows<'_>, sums: &mut [u16], out: &mut [u8]) {
    both_row(rows, sums, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn down_avx2(rows: SampleRows<'_>, out: &mut [u8]) {
    down_row(rows, out);
}

#[inline(always)]
fn across_row(near: &[u8], out: &mut [u8]) {
    let (pairs, _) = out.as_chunks_mut::<2>();
    let count = pairs.len().min(near.len().saturating_sub(2));
    let (left, middle, right) = (&near[..count], &near[1..=count], &near[2..count + 2]);
    for i in 0..count {
        let sample = u16::from(middle[i]) * 3;
        pairs[i] = [
            ((sample + u16::from(left[i]) + 1) >> 2) as u8,
            ((sample + u16::from(right[i]) + 2) >> 2) as u8,
        ];
    }
}

#[inline(always)]
fn both_row(rows: SampleRows<'_>, sums: &mut [u16], out: &mut [u8]) {
    for ((sum, &near), &far) in sums.iter_mut().zip(rows.near).zip(rows.far) {
        *sum = u16::from(near) * 3 + u16::from(far);
    }
    let (pairs, _) = out.as_chunks_mut::<2>();
    let count = pairs.len().min(sums.len().saturating_sub(2));
    let (left, middle, right) = (&sums[..count], &sums[1..=count], &sums[2..count + 2]);
    for i in 0..count {
        let sum = middle[i] * 3;
        pairs[i] = [
            ((sum + left[i] + 8) >> 4) as u8,
            ((sum + right[i] + 7) >> 4) as u8,
        ];
    }
}

#[inline(always)]
fn down_row(rows: SampleRows<'_>, out: &mut [u8]) {
    let bias = if rows.is_below { 2 } else { 1 };
    for ((out, &near), &far) in out.iter_mut().zip(rows.near).zip(rows.far) {
        *out = ((u16::from(near) * 3 + u16::from(far) + bias) >> 2) as u8;
    }
}
