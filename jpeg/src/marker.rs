//! Markers, and the segments that they begin (ITU-T T.81, table B.1 and B.1.1.4).

use crate::error::HeaderError;

pub(crate) const SOF0: u8 = 0xc0;
pub(crate) const SOF2: u8 = 0xc2;
pub(crate) const DHT: u8 = 0xc4;
pub(crate) const RST0: u8 = 0xd0;
pub(crate) const RST7: u8 = 0xd7;
pub(crate) const SOI: u8 = 0xd8;
pub(crate) const EOI: u8 = 0xd9;
pub(crate) const SOS: u8 = 0xda;
pub(crate) const DQT: u8 = 0xdb;
pub(crate) const DRI: u8 = 0xdd;
pub(crate) const APP0: u8 = 0xe0;
pub(crate) const APP1: u8 = 0xe1;
pub(crate) const APP14: u8 = 0xee;
pub(crate) const TEM: u8 = 0x01;

/// A marker segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) kind: u8,
    /// Byte offset of the marker.
    pub(crate) at: usize,
    /// Bytes after the length field; empty for markers without one.
    pub(crate) body: &'a [u8],
    /// Byte offset after the segment.
    pub(crate) end: usize,
}

/// Reads marker segments one after another.
#[derive(Debug)]
pub(crate) struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    pub(crate) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the next segment. Stray bytes before its marker are skipped, as libjpeg does.
    pub(crate) fn next(&mut self) -> Result<Segment<'a>, HeaderError> {
        loop {
            let rest = self.bytes.get(self.at..).ok_or(HeaderError::Truncated)?;
            let at = self.at + memchr::memchr(0xff, rest).ok_or(HeaderError::Truncated)?;
            let kind = *self.bytes.get(at + 1).ok_or(HeaderError::Truncated)?;
            let (body, end): (&[u8], usize) = match kind {
                // Stuffed bytes, fill bytes and stray markers of restarts.
                0x00 | 0xff | TEM | RST0..=SOI => {
                    self.at = at + 1 + usize::from(kind != 0xff);
                    continue;
                }
                EOI => (&[], at + 2),
                _ => {
                    let field = self
                        .bytes
                        .get(at + 2..at + 4)
                        .ok_or(HeaderError::Truncated)?;
                    let length = usize::from(u16::from_be_bytes([field[0], field[1]]));
                    let end = at + 2 + length;
                    if length < 2 {
                        return Err(HeaderError::Invalid("segment length"));
                    }
                    let body = self.bytes.get(at + 4..end).ok_or(HeaderError::Truncated)?;
                    (body, end)
                }
            };
            self.at = end;
            return Ok(Segment {
                kind,
                at,
                body,
                end,
            });
        }
    }
}
