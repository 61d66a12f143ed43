//! Keys of cached prefixes, keys of files, and addresses of stored rows.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::Clock;

/// The key of a cached prefix (a sub-plan over one scan): a fingerprint of the meaning of the
/// prefix, computed by the caller. Pipelines whose prefixes have the same meaning share the stored
/// rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// Creates the key that consists of `bytes`.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the key as bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the first twelve hexadecimal digits of the key, which are enough for people to tell
    /// keys apart.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({self})")
    }
}

/// The key of one version of a file. A changed file has another key, so the rows stored for the old
/// version are not used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(u128);

impl FileKey {
    /// Computes the key of a file from its path, the identity of its content, and the time of its
    /// last change in nanoseconds since 1970 (`None` when unknown).
    pub fn of(path: &str, identity: &[u8], modified: Option<i128>) -> Self {
        let mut hasher = blake3::Hasher::new();
        // A length or a marker precedes each argument, so that different arguments never give the
        // same hashed bytes.
        hasher.update(&(path.len() as u64).to_le_bytes());
        hasher.update(path.as_bytes());
        hasher.update(&(identity.len() as u64).to_le_bytes());
        hasher.update(identity);
        match modified {
            Some(time) => {
                hasher.update(&[1]);
                hasher.update(&time.to_le_bytes());
            }
            None => {
                hasher.update(&[0]);
            }
        }
        Self(u128::from_be_bytes(checksum(&hasher)))
    }

    pub(super) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Returns the key as bytes. The bytes of two keys compare as the keys do.
    pub(crate) const fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileKey({:032x})", self.0)
    }
}

/// The address of a row: its file and its row number in that file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowAddress {
    /// The file that the row is read from.
    pub file: FileKey,
    /// Number of the row in the file.
    pub row: u64,
}

/// Returns the first 128 bits of the BLAKE3 hash, which are enough to detect damage, and to name
/// contents without collisions.
pub(super) fn checksum(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut sum = [0; 16];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

/// Returns the checksum of `bytes`.
pub(super) fn checksum_of(bytes: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    checksum(&hasher)
}

/// Returns bytes that differ from those of any other call, in this process or another.
pub(super) fn fresh(clock: &dyn Clock) -> [u8; 16] {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let parts = [
        u64::from(std::process::id()),
        clock.unix_ms(),
        clock.elapsed().as_nanos() as u64,
        COUNT.fetch_add(1, Ordering::Relaxed),
        // If the operating system loads programs at random addresses, this address differs between
        // processes, even between those of two machines.
        std::ptr::from_ref(&COUNT) as u64,
    ];
    checksum_of(&parts.map(u64::to_le_bytes).concat())
}

/// Formats bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_file_makes_its_key() {
        let keys = [
            FileKey::of("a", b"x", None),
            FileKey::of("b", b"x", None),
            FileKey::of("a", b"y", None),
            FileKey::of("ax", b"", None),
            FileKey::of("a", b"x", Some(0)),
            FileKey::of("a", b"x", Some(-5)),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(at));
            assert_eq!(FileKey::from_bytes(key.bytes()), *key);
        }
    }
}
