//! The blocks of a split as a file of sound, uncompressed blocks.

use std::io::{self, BufRead, Read, Seek};

use super::container::{Bytes, Header, put_long};
use super::shape::Shape;

/// A header and the blocks of a split, each decompressed and checked before its first byte is handed
/// out.
#[derive(Debug)]
pub(super) struct Blocks<'a, R> {
    stored: Bytes<R>,
    header: &'a Header,
    shape: &'a Shape,
    /// What is handed out.
    bytes: Vec<u8>,
    /// How much of it was taken.
    taken: usize,
}

impl<'a, R: BufRead + Seek> Blocks<'a, R> {
    /// The blocks in `stored`.
    pub(super) fn new(stored: Bytes<R>, header: &'a Header, shape: &'a Shape) -> Self {
        Self {
            stored,
            header,
            shape,
            bytes: header.uncompressed(),
            taken: 0,
        }
    }

    /// Makes the next block the bytes that are handed out.
    fn next_block(&mut self) -> Result<(), String> {
        let (rows, stored) = self.stored.block(self.header)?;
        let data = self.header.codec.decompress(stored)?;
        self.shape.check(&data, rows)?;
        self.taken = 0;
        self.bytes.clear();
        put_long(&mut self.bytes, rows);
        put_long(&mut self.bytes, data.len() as u64);
        self.bytes.extend_from_slice(&data);
        self.bytes.extend_from_slice(&self.header.sync);
        Ok(())
    }
}

impl<R: BufRead + Seek> BufRead for Blocks<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.bytes.len() && !self.stored.is_at_end() {
            let start = self.stored.at();
            self.next_block()
                .map_err(|cause| io::Error::other(format!("block at byte {start}: {cause}")))?;
        }
        Ok(&self.bytes[self.taken..])
    }

    fn consume(&mut self, amount: usize) {
        self.taken = (self.taken + amount).min(self.bytes.len());
    }
}

impl<R: BufRead + Seek> Read for Blocks<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}
