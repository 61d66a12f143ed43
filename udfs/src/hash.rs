//! The 64-bit hashes that row keys, draws and shuffle orders are built from.
//!
//! The hashes are part of a stream's identity: changing one of these functions changes every
//! stream.

/// The finaliser of MurmurHash3 with David Stafford's "Mix13" constants (as in SplitMix64, Steele,
/// Lea, Flood 2014): a bijection on 64 bits in which every input bit affects every output bit.
#[inline]
pub const fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hashes two words; the order of the words matters.
#[inline]
pub const fn combine(a: u64, b: u64) -> u64 {
    // The odd constant is 2^64 / golden ratio, SplitMix64's increment.
    mix64(mix64(a.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Hashes bytes (paths, stream names): FNV-1a over the bytes, then [`mix64`] for avalanche.
pub const fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    mix64(hash ^ bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_fixed_for_ever() {
        assert_eq!(mix64(1), 0x5692_161d_100b_05e5);
        assert_ne!(combine(1, 2), combine(2, 1));
        assert_ne!(hash_bytes(b"a"), hash_bytes(b"a\0"));
    }
}
