//! The frame of a message: magic bytes, format version, release, checksum and payload.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | format version, little-endian as all numbers |
//! | 1, n | length and text of the sender's release |
//! | 32 | BLAKE3 of the payload |
//! | .. | payload |
//!
//! The checksum finds damage, also in parts of a plan that no hash covers, such as the seed. It
//! does not prove who sent the plan.

use super::error::WireError;
use super::version::{RELEASE, VERSION};
use crate::saved::difference::plain;

/// The first bytes of a message. The line break shows a transfer that alters line breaks.
const MAGIC: &[u8; 8] = b"FBPLAN\r\n";

/// Returns the message with this payload.
pub(super) fn framed(payload: &[u8]) -> Vec<u8> {
    framed_as(VERSION, RELEASE, payload)
}

/// Returns the message that the release `release` sends in the format `version`.
pub(super) fn framed_as(version: u32, release: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.push(release.len() as u8);
    bytes.extend(release.as_bytes());
    bytes.extend(blake3::hash(payload).as_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the payload of a message.
///
/// # Errors
/// Fails if the bytes are not a message, are longer than `max_bytes`, have another format version,
/// come from another release, or are damaged.
pub(super) fn payload(bytes: &[u8], max_bytes: usize) -> Result<&[u8], WireError> {
    if bytes.len() > max_bytes {
        return Err(WireError::TooLarge {
            bytes: bytes.len(),
            max: max_bytes,
        });
    }
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(WireError::malformed("it does not begin as a plan"));
    }
    let found = reader.number()?;
    if found != VERSION {
        return Err(WireError::Version { found });
    }
    let length = usize::from(reader.array::<1>()?[0]);
    let release = reader.take(length)?;
    if release != RELEASE.as_bytes() {
        let sent = plain(&String::from_utf8_lossy(release));
        return Err(WireError::Release { sent });
    }
    let checksum = reader.array::<32>()?;
    if *blake3::hash(reader.0).as_bytes() != checksum {
        return Err(WireError::malformed("its checksum is wrong"));
    }
    Ok(reader.0)
}

/// Reads parts of a message from its front.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            return Err(WireError::malformed("it ends early"));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Returns the next number.
    pub(super) fn number(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Returns the next part that has its length before it.
    pub(super) fn part(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.number()?;
        self.take(length as usize)
    }
}

/// Appends a number.
pub(super) fn put_number(bytes: &mut Vec<u8>, number: usize) -> Result<(), WireError> {
    let number = u32::try_from(number);
    let number = number.map_err(|_| WireError::Unsupported("a plan above 4 GiB".to_owned()))?;
    bytes.extend(number.to_le_bytes());
    Ok(())
}

/// Appends a part, with its length before it.
pub(super) fn put_part(bytes: &mut Vec<u8>, part: &[u8]) -> Result<(), WireError> {
    put_number(bytes, part.len())?;
    bytes.extend(part);
    Ok(())
}
