//! Reads the blocks of a split of an Avro file, and presents the blocks to the decoder as a file of
//! sound, uncompressed blocks.

use std::io::{self, BufRead, Read, Seek};

use super::container::{ContainerHeader, RangeReader, put_long};
use super::shape::RowShape;

/// A reader that returns a file's header, followed by the blocks of one split. Each block is
/// decompressed and checked before its first byte is returned.
#[derive(Debug)]
pub(super) struct Blocks<'a, R> {
    stored: RangeReader<R>,
    header: &'a ContainerHeader,
    shape: &'a RowShape,
    /// The header or the block that is being returned, uncompressed.
    bytes: Vec<u8>,
    /// Number of bytes at the start of `bytes` that were already returned.
    taken: usize,
}

impl<'a, R: BufRead + Seek> Blocks<'a, R> {
    /// Creates a reader that returns the header first, then the blocks in `stored`.
    pub(super) fn new(
        stored: RangeReader<R>,
        header: &'a ContainerHeader,
        shape: &'a RowShape,
    ) -> Self {
        Self {
            stored,
            header,
            shape,
            bytes: header.uncompressed(),
            taken: 0,
        }
    }

    /// Reads, decompresses and checks the next block, and replaces `bytes` by this block.
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
