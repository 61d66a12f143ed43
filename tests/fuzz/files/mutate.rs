//! Random mutations of a file's bytes.

use crate::draw::Draw;

/// Integers that often break the handling of lengths and counts.
const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    -2,
    127,
    128,
    255,
    256,
    32_767,
    65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    1 << 32,
    1 << 33,
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
];

/// Returns a copy of the file `sound` with random damage. The damage may include pieces of the file
/// `other`.
pub(super) fn mutated(draw: &mut Draw, sound: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for _ in 0..draw.pick(&[1, 1, 1, 2, 3, 8]) {
        if bytes.is_empty() {
            break;
        }
        let at = place(draw, bytes.len());
        match draw.whole(0, 9) {
            0..=2 => bytes[at] ^= 1 << draw.whole(0, 7),
            3 => {
                bytes[at] =
                    draw.pick(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'\n', b'\r', b',', b'{', b'['])
            }
            4..=5 => number(draw, &mut bytes, at),
            6 => bytes.truncate(at),
            7 => {
                let end = (at + draw.whole(1, 64) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
            8 => {
                // Inserts bytes that are copied from elsewhere in the file or from `other`.
                let from = if draw.chance(50) { other } else { sound };
                let start = place(draw, from.len());
                let end = (start + draw.whole(1, 256) as usize).min(from.len());
                bytes.splice(at..at, from[start..end].iter().copied());
            }
            _ => {
                let start = place(draw, other.len());
                let length = (draw.whole(1, 64) as usize)
                    .min(other.len() - start)
                    .min(bytes.len() - at);
                bytes[at..at + length].copy_from_slice(&other[start..start + length]);
            }
        }
    }
    bytes
}

/// Returns a random byte offset in a file of `length` bytes, often near the start or the end, where
/// headers and footers are.
fn place(draw: &mut Draw, length: usize) -> usize {
    let last = length.max(1) as u64 - 1;
    let offset = match draw.whole(0, 3) {
        0 => draw.whole(0, last.min(200)),
        1 => last - draw.whole(0, last.min(1500)),
        _ => draw.whole(0, last),
    };
    offset as usize
}

/// Overwrites 1 to 8 bytes at or near the offset `at` with a random number, since the bytes may
/// encode a length or a count.
fn number(draw: &mut Draw, bytes: &mut [u8], at: usize) {
    let width = draw.pick(&[1, 2, 4, 4, 8, 8]);
    let at = if draw.chance(70) {
        at / width * width
    } else {
        at
    };
    let mut number = draw.pick(NUMBERS);
    if draw.chance(30) {
        let held = bytes.get(at).copied().unwrap_or(0);
        number = i64::from(held) + draw.pick(&[-1, 1, 8, -8]);
    }
    let stated = number.to_le_bytes();
    for (byte, stated) in bytes.iter_mut().skip(at).take(width).zip(stated) {
        *byte = stated;
    }
}
