//! The entropy-coded data of a scan without its stuffed bytes, split at restart markers.

use crate::bits::{BLOCK_ROOM, BitReader};
use crate::huffman::Coders;
use crate::idct::CoefficientBlock;
use crate::marker;

/// Coded data of a scan. Buffers are reused from scan to scan.
#[derive(Debug, Default)]
pub(crate) struct CodedData {
    bytes: Vec<u8>,
    /// Offset after each segment.
    ends: Vec<usize>,
}

impl CodedData {
    /// Takes the data that begins at `start` of a file, up to `most` segments of it, and returns
    /// the file's offset of the marker after the data.
    ///
    /// Segments are counted in their order; the numbers of restart markers are ignored.
    pub(crate) fn take(&mut self, file: &[u8], start: usize, most: usize) -> usize {
        self.bytes.clear();
        self.ends.clear();
        self.bytes.reserve(file.len().saturating_sub(start));
        let mut at = start;
        loop {
            let rest = file.get(at..).unwrap_or_default();
            let length = memchr::memchr(0xff, rest).unwrap_or(rest.len());
            let is_kept = self.ends.len() < most;
            if is_kept {
                self.bytes.extend_from_slice(&rest[..length]);
            }
            let found = at + length;
            // Any number of 0xff may precede a marker's second byte.
            let fill = rest[length..].iter().take_while(|&&b| b == 0xff).count();
            at = found + fill + 1;
            match file.get(found + fill) {
                Some(0) => {
                    if is_kept {
                        self.bytes.push(0xff);
                    }
                }
                Some(marker::RST0..=marker::RST7) => {
                    if is_kept {
                        self.ends.push(self.bytes.len());
                    }
                }
                _ => {
                    if is_kept {
                        self.ends.push(self.bytes.len());
                    }
                    return found;
                }
            }
        }
    }

    /// Number of bytes of the buffers.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Returns a segment; an empty one where there is none.
    pub(crate) fn segment(&self, index: usize) -> &[u8] {
        let start = match index {
            0 => 0,
            _ => self
                .ends
                .get(index - 1)
                .copied()
                .unwrap_or(self.bytes.len()),
        };
        let end = self.ends.get(index).copied().unwrap_or(start);
        &self.bytes[start..end]
    }
}

/// Reads the blocks of one segment.
///
/// Bits after the segment's end are zeros, and a block that begins after the end is not coded.
#[derive(Debug)]
pub(crate) struct SegmentReader<'a> {
    segment: &'a [u8],
    /// The segment's last bytes with zeros after them, once the reader is near the end.
    tail: Vec<u8>,
    /// Number of bits of the tail that belong to the segment; `None` before the reader is there.
    tail_bits: Option<usize>,
    pub(crate) bits: BitReader,
    /// True after a block that passed the end.
    pub(crate) is_exhausted: bool,
}

impl<'a> SegmentReader<'a> {
    /// Creates a reader at a bit of a segment. It takes over the buffer of one before it.
    pub(crate) fn new(segment: &'a [u8], bit: usize, tail: Vec<u8>) -> Self {
        Self {
            segment,
            tail,
            tail_bits: None,
            bits: BitReader::new(segment, bit),
            is_exhausted: false,
        }
    }

    /// Begins another segment.
    pub(crate) fn restart(&mut self, segment: &'a [u8]) {
        let is_damaged = self.bits.is_damaged;
        let tail = std::mem::take(&mut self.tail);
        *self = Self::new(segment, 0, tail);
        self.bits.is_damaged = is_damaged;
    }

    /// Number of bits of the segment before the reader's place.
    pub(crate) const fn position(&self) -> usize {
        let bits = self.bits.position();
        match self.tail_bits {
            None => bits,
            Some(tail_bits) => self.segment.len() * 8 - tail_bits + bits,
        }
    }

    /// Returns the buffer of the reader.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.tail
    }

    /// Decodes a block into `out`, which is all zeros. Returns true if it has no AC coefficients.
    #[inline(always)]
    pub(crate) fn block(
        &mut self,
        coders: Coders<'_>,
        prediction: &mut i16,
        out: &mut CoefficientBlock,
    ) -> bool {
        if self.is_far() {
            return self.bits.block(self.segment, coders, prediction, out);
        }
        let block = |bits: &mut BitReader, data: &[u8]| bits.block(data, coders, prediction, out);
        self.read_tail(block).unwrap_or(true)
    }

    /// Passes over a block.
    #[inline(always)]
    pub(crate) fn skip(&mut self, coders: Coders<'_>, prediction: &mut i16) {
        if self.is_far() {
            self.bits.skip(self.segment, coders, prediction);
        } else {
            self.read_tail(|bits, data| bits.skip(data, coders, prediction));
        }
    }

    /// Calls `read` with the reader and the data that it reads, also at the end of the data: the
    /// block may have no bits.
    pub(crate) fn read_any(&mut self, read: impl FnOnce(&mut BitReader, &[u8])) {
        if self.is_far() {
            read(&mut self.bits, self.segment);
        } else if !self.is_exhausted {
            self.enter_tail();
            self.read_in_tail(read);
        }
    }

    /// True if no block can pass the end.
    #[inline(always)]
    const fn is_far(&self) -> bool {
        self.tail_bits.is_none() && self.bits.next_byte() + BLOCK_ROOM <= self.segment.len()
    }

    #[inline(never)]
    fn read_tail<T>(&mut self, read: impl FnOnce(&mut BitReader, &[u8]) -> T) -> Option<T> {
        if self.is_exhausted {
            return None;
        }
        self.enter_tail();
        if Some(self.bits.position()) >= self.tail_bits {
            self.is_exhausted = true;
            self.bits.is_damaged = true;
            return None;
        }
        Some(self.read_in_tail(read))
    }

    fn read_in_tail<T>(&mut self, read: impl FnOnce(&mut BitReader, &[u8]) -> T) -> T {
        let value = read(&mut self.bits, &self.tail);
        if Some(self.bits.position()) > self.tail_bits {
            self.is_exhausted = true;
            self.bits.is_damaged = true;
        }
        value
    }

    /// Copies the segment's last bytes, once.
    fn enter_tail(&mut self) {
        if self.tail_bits.is_some() {
            return;
        }
        let position = self.bits.position();
        let rest = self.segment.get(position / 8..).unwrap_or_default();
        self.tail.clear();
        self.tail.extend_from_slice(rest);
        self.tail.resize(rest.len() + 2 * BLOCK_ROOM, 0);
        let is_damaged = self.bits.is_damaged;
        self.bits = BitReader::new(&self.tail, position % 8);
        self.bits.is_damaged = is_damaged;
        self.tail_bits = Some(rest.len() * 8);
    }
}
