//! Parsing of cache keys, as people and stores write them.

use std::str::FromStr;

use super::error::CacheError;
use super::key::CacheKey;

impl FromStr for CacheKey {
    type Err = CacheError;

    /// Parses 64 lower-case hexadecimal digits, as [`Display`](std::fmt::Display) writes them.
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
        Ok(Self::new(bytes))
    }
}

/// True when `text` consists of exactly `digits` lower-case hexadecimal digits. Names that are read
/// from a store are checked by this function before they become part of a path.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
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
}
