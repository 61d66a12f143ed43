//! Converts YCbCr to RGB as libjpeg does (`jdcolor.c`, `ycc_rgb_convert`), bit for bit.

use crate::simd::{InstructionSet, Level};

/// Rows of the three components, of equal lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planes<'a> {
    pub(crate) y: &'a [u8],
    pub(crate) cb: &'a [u8],
    pub(crate) cr: &'a [u8],
}

impl Planes<'_> {
    fn after(self, at: usize) -> Self {
        Self {
            y: &self.y[at..],
            cb: &self.cb[at..],
            cr: &self.cr[at..],
        }
    }
}

/// Converts a row to interleaved RGB.
pub(crate) fn rgb(simd: InstructionSet, planes: Planes<'_>, out: &mut [u8]) {
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if simd.level() >= Level::Avx2 {
        // SAFETY: a set at this level exists only where the machine has AVX2.
        done = unsafe { x86::rgb_avx2(planes, out) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (simd, Level::Scalar);
    scalar(planes.after(done), &mut out[done * 3..]);
}

/// Converts a row of inks to interleaved RGB as Pillow does: the stored inks are inverted, as Adobe
/// writes them (`Convert.c`, `cmyk2rgb`). The first three are stored as luma and chroma in YCCK.
pub(crate) fn inks(
    simd: InstructionSet,
    planes: Planes<'_>,
    black: &[u8],
    is_ycck: bool,
    out: &mut [u8],
) {
    if is_ycck {
        // The conversion yields the inks in place of RGB: libjpeg inverts them (`jdcolor.c`,
        // `ycck_cmyk_convert`), and Pillow inverts them again.
        rgb(simd, planes, out);
    } else {
        let inks = planes.y.iter().zip(planes.cb).zip(planes.cr);
        for (out, ((&c, &m), &y)) in out.chunks_exact_mut(3).zip(inks) {
            out.copy_from_slice(&[255 - c, 255 - m, 255 - y]);
        }
    }
    for (out, &white) in out.chunks_exact_mut(3).zip(black) {
        for ink in out {
            let product = u32::from(*ink) * u32::from(white) + 128;
            *ink = white - ((product + (product >> 8)) >> 8) as u8;
        }
    }
}

/// Factors in units of 2^-16.
const CR_TO_R: i32 = 91_881;
const CB_TO_G: i32 = -22_554;
const CR_TO_G: i32 = -46_802;
const CB_TO_B: i32 = 116_130;

fn scalar(planes: Planes<'_>, out: &mut [u8]) {
    let chroma = planes.cb.iter().zip(planes.cr);
    for ((out, &y), (&cb, &cr)) in out.chunks_exact_mut(3).zip(planes.y).zip(chroma) {
        let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
        let part = |value: i32| (y + ((value + (1 << 15)) >> 16)).clamp(0, 255) as u8;
        out[0] = part(CR_TO_R * cr);
        out[1] = part(CB_TO_G * cb + CR_TO_G * cr);
        out[2] = part(CB_TO_B * cb);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{CB_TO_B, CB_TO_G, CR_TO_G, CR_TO_R, Planes};

    /// Pixels of a step.
    const STEP: usize = 32;

    /// Converts whole steps, and returns the number of pixels that were converted.
    #[target_feature(enable = "avx2")]
    pub(super) fn rgb_avx2(planes: Planes<'_>, out: &mut [u8]) -> usize {
        let steps = planes
            .y
            .chunks_exact(STEP)
            .zip(planes.cb.chunks_exact(STEP));
        let steps = steps.zip(planes.cr.chunks_exact(STEP));
        let mut count = 0;
        for (((y, cb), cr), out) in steps.zip(out.chunks_exact_mut(STEP * 3)) {
            let (y, cb, cr) = (load(y), load(cb), load(cr));
            let low = convert(unpack_low(y), unpack_low(cb), unpack_low(cr));
            let high = convert(unpack_high(y), unpack_high(cb), unpack_high(cr));
            let r = _mm256_packus_epi16(low[0], high[0]);
            let g = _mm256_packus_epi16(low[1], high[1]);
            let b = _mm256_packus_epi16(low[2], high[2]);
            interleave(r, g, b, out);
            count += STEP;
        }
        let length = planes.y.len();
        if length > STEP && count < length {
            // The last step begins earlier, and computes some pixels again.
            rgb_avx2(planes.after(length - STEP), &mut out[(length - STEP) * 3..]);
            count = length;
        }
        count
    }

    #[target_feature(enable = "avx2")]
    fn load(samples: &[u8]) -> __m256i {
        debug_assert_eq!(samples.len(), STEP);
        // SAFETY: the caller's chunks have the 32 bytes that are read; no alignment is needed.
        unsafe { _mm256_loadu_si256(samples.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    fn unpack_low(bytes: __m256i) -> __m256i {
        _mm256_unpacklo_epi8(bytes, _mm256_setzero_si256())
    }

    #[target_feature(enable = "avx2")]
    fn unpack_high(bytes: __m256i) -> __m256i {
        _mm256_unpackhi_epi8(bytes, _mm256_setzero_si256())
    }

    /// Converts 16 pixels of 16-bit samples. The factors do not fit 16 bits, so whole multiples are
    /// added apart; half of a product of twice the difference rounds as the product does.
    #[target_feature(enable = "avx2")]
    fn convert(y: __m256i, cb: __m256i, cr: __m256i) -> [__m256i; 3] {
        let center = _mm256_set1_epi16(128);
        let one = _mm256_set1_epi16(1);
        let (cb, cr) = (_mm256_sub_epi16(cb, center), _mm256_sub_epi16(cr, center));
        let (cb2, cr2) = (_mm256_add_epi16(cb, cb), _mm256_add_epi16(cr, cr));
        let r = _mm256_mulhi_epi16(cr2, _mm256_set1_epi16((CR_TO_R - 65_536) as i16));
        let r = _mm256_add_epi16(_mm256_srai_epi16::<1>(_mm256_add_epi16(r, one)), cr);
        let b = _mm256_mulhi_epi16(cb2, _mm256_set1_epi16((CB_TO_B - 131_072) as i16));
        let b = _mm256_add_epi16(_mm256_srai_epi16::<1>(_mm256_add_epi16(b, one)), cb2);
        let factors = _mm256_set1_epi32(((CR_TO_G + 65_536) << 16) | (CB_TO_G & 0xffff));
        let half = _mm256_set1_epi32(1 << 15);
        let low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), factors);
        let high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), factors);
        let low = _mm256_srai_epi32::<16>(_mm256_add_epi32(low, half));
        let high = _mm256_srai_epi32::<16>(_mm256_add_epi32(high, half));
        let g = _mm256_sub_epi16(_mm256_packs_epi32(low, high), cr);
        [
            _mm256_add_epi16(y, r),
            _mm256_add_epi16(y, g),
            _mm256_add_epi16(y, b),
        ]
    }

    /// Writes 32 pixels.
    #[target_feature(enable = "avx2")]
    fn interleave(r: __m256i, g: __m256i, b: __m256i, out: &mut [u8]) {
        // Byte `i` of part `p` is sample `(16 * p + i) / 3` of channel `(16 * p + i) % 3`.
        const fn places(part: i8, channel: i8) -> [i8; 32] {
            let mut places = [-1; 32];
            let mut i = 0;
            while i < 16 {
                let at = 16 * part + i;
                if at % 3 == channel {
                    places[i as usize] = at / 3;
                    places[i as usize + 16] = at / 3;
                }
                i += 1;
            }
            places
        }
        const PLACES: [[[i8; 32]; 3]; 3] = [
            [places(0, 0), places(0, 1), places(0, 2)],
            [places(1, 0), places(1, 1), places(1, 2)],
            [places(2, 0), places(2, 1), places(2, 2)],
        ];
        let (first, second) = out.split_at_mut(STEP * 3 / 2);
        let halves = first.chunks_exact_mut(16).zip(second.chunks_exact_mut(16));
        for ((low, high), places) in halves.zip(&PLACES) {
            let mut part = _mm256_setzero_si256();
            for (channel, places) in [r, g, b].into_iter().zip(places) {
                // SAFETY: an array of places has the 32 bytes that are read.
                let places = unsafe { _mm256_loadu_si256(places.as_ptr().cast()) };
                part = _mm256_or_si256(part, _mm256_shuffle_epi8(channel, places));
            }
            // SAFETY: the chunks have the 16 bytes that are written; no alignment is needed.
            unsafe {
                _mm_storeu_si128(low.as_mut_ptr().cast(), _mm256_castsi256_si128(part));
                _mm_storeu_si128(
                    high.as_mut_ptr().cast(),
                    _mm256_extracti128_si256::<1>(part),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every color, at every level.
    #[test]
    fn levels_agree_on_every_color() {
        let line: Vec<u8> = (0..=255).collect();
        for cb in 0..=255 {
            for cr in 0..=255 {
                let planes = Planes {
                    y: &line,
                    cb: &[cb; 256],
                    cr: &[cr; 256],
                };
                let mut expected = [0; 768];
                scalar(planes, &mut expected);
                for simd in InstructionSet::all() {
                    let mut out = [0; 768];
                    rgb(simd, planes, &mut out);
                    assert_eq!(out, expected, "{simd:?} {cb} {cr}");
                }
            }
        }
    }
}
