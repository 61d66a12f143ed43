//! Names: of a prefix, of a file's contents, of a stored row.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::Clock;
use super::error::CacheError;

/// What names a cached prefix: a fingerprint of its meaning, computed by the caller. Prefixes of one
/// meaning share their rows whatever pipeline they are in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// A key of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first twelve digits: enough for a person to tell keys apart.
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

impl FromStr for CacheKey {
    type Err = CacheError;

    /// Reads 64 lower-case hexadecimal digits, as [`Display`](fmt::Display) writes them.
    fn from_str(text: &str) -> Result<Self, CacheError> {
        let problem = || CacheError::Key {
            text: text.chars().take(80).collect(),
        };
        if !is_hex(text, 64) {
            return Err(problem());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * at..2 * at + 2).ok_or_else(problem)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| problem())?;
        }
        Ok(Self(bytes))
    }
}

/// Whether a text is that many lower-case hexadecimal digits. Names read from a store must be,
/// before they become part of a path.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// What names a file as it was when it was read: rows of a file that was changed are other rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(u128);

impl FileKey {
    /// The key of a file: its place, the identity of what it holds, and when it was changed last, in
    /// nanoseconds since 1970, where the store knows that.
    pub fn of(path: &str, identity: &[u8], modified: Option<i128>) -> Self {
        let mut hasher = blake3::Hasher::new();
        // Lengths and markers before the parts: no two descriptions are the same bytes.
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

    /// The bytes, in the order in which keys sort.
    pub(crate) const fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileKey({:032x})", self.0)
    }
}

/// A stored row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowAddress {
    /// The file.
    pub file: FileKey,
    /// Number of the row in the file.
    pub row: u64,
}

/// 128 bits of BLAKE3: enough against damage, and against two contents of one name.
pub(super) fn checksum(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut sum = [0; 16];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

/// The checksum of bytes.
pub(super) fn checksum_of(bytes: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    checksum(&hasher)
}

/// Bytes that nobody else makes, in this process or another.
pub(super) fn fresh(clock: &dyn Clock) -> [u8; 16] {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let parts = [
        u64::from(std::process::id()),
        clock.unix_ms(),
        clock.elapsed().as_nanos() as u64,
        COUNT.fetch_add(1, Ordering::Relaxed),
        // Where the system loads programs at random places, processes of two machines differ here.
        std::ptr::from_ref(&COUNT) as u64,
    ];
    checksum_of(&parts.map(u64::to_le_bytes).concat())
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = CacheKey::new(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(key.to_string().parse::<CacheKey>().unwrap(), key);
        assert!(key.to_string().starts_with(&key.short()));
        for text in [
            "",
            "../../etc/passwd",
            &"g".repeat(64),
            &"A".repeat(64),
            &"\u{e4}".repeat(32),
        ] {
            let error = text.parse::<CacheKey>().unwrap_err();
            assert!(error.is_user(), "{error}");
        }
    }

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
