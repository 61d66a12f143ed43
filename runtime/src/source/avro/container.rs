//! The layout of an Avro object container file: a header, then blocks.
//!
//! The layout is that of the Avro specification 1.11, "Object Container Files".

use std::io::{BufRead, Seek};

use super::codec::{BlockCodec, MAX_BLOCK_BYTES};

/// Maximum size of a file's header in bytes; a larger header is an error.
const MAX_HEADER_BYTES: u64 = 16 << 20;

const MAGIC: &[u8; 4] = b"Obj\x01";
const SYNC_BYTES: usize = 16;

/// The sync marker that ends each block.
pub(super) type Sync = [u8; SYNC_BYTES];

/// The header of an Avro file.
#[derive(Debug)]
pub(super) struct ContainerHeader {
    /// The schema of the rows as JSON.
    pub(super) schema: Vec<u8>,
    pub(super) codec: BlockCodec,
    pub(super) sync: Sync,
}

impl ContainerHeader {
    /// Returns the bytes of a header that has the same schema and sync marker, but states that
    /// blocks are not compressed.
    pub(super) fn uncompressed(&self) -> Vec<u8> {
        let key = b"avro.schema";
        let mut bytes = MAGIC.to_vec();
        put_long(&mut bytes, 1);
        put_long(&mut bytes, key.len() as u64);
        bytes.extend_from_slice(key);
        put_long(&mut bytes, self.schema.len() as u64);
        bytes.extend_from_slice(&self.schema);
        put_long(&mut bytes, 0);
        bytes.extend_from_slice(&self.sync);
        bytes
    }
}

/// Appends `length` to `bytes` as a zig-zag variable-length integer.
pub(super) fn put_long(bytes: &mut Vec<u8>, length: u64) {
    let mut rest = length << 1;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// Reads a range of bytes of a file, and tracks the offset of the next byte in the file.
#[derive(Debug)]
pub(super) struct RangeReader<R> {
    input: R,
    at: u64,
    end: u64,
}

impl<R: BufRead + Seek> RangeReader<R> {
    /// Creates a reader of the bytes `at..end` of a file. The next byte that `input` returns must
    /// be the byte at offset `at`.
    pub(super) const fn new(input: R, at: u64, end: u64) -> Self {
        Self { input, at, end }
    }

    /// Returns the offset of the next byte in the file.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// True when no byte is left before the end.
    pub(super) const fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    fn exact<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.claim(N as u64)?;
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.input
            .read_exact(bytes)
            .map_err(|error| format!("the file cannot be read further: {error}"))
    }

    /// Advances the offset by `bytes`. Fewer bytes left before the end are an error.
    fn claim(&mut self, bytes: u64) -> Result<(), String> {
        if bytes > self.end.saturating_sub(self.at) {
            return Err("the file ends too early".to_owned());
        }
        self.at += bytes;
        Ok(())
    }

    /// Reads a zig-zag variable-length integer. A negative integer is an error.
    fn length(&mut self) -> Result<u64, String> {
        let length = self.long()?;
        u64::try_from(length).map_err(|_| format!("a negative length, {length}"))
    }

    fn long(&mut self) -> Result<i64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.exact()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err("an integer of more than 64 bits".to_owned())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), String> {
        self.claim(bytes)?;
        let offset = bytes.cast_signed();
        // A relative seek keeps the reader's buffer, which an absolute seek would discard.
        self.input.seek_relative(offset).map_err(|e| e.to_string())
    }

    fn take(&mut self, bytes: u64) -> Result<Vec<u8>, String> {
        self.claim(bytes)?;
        let mut taken = vec![0; bytes as usize];
        self.fill(&mut taken)?;
        Ok(taken)
    }

    /// Reads the header.
    pub(super) fn header(&mut self) -> Result<ContainerHeader, String> {
        if self.exact::<4>().ok() != Some(*MAGIC) {
            return Err("it does not begin as an Avro object container file".to_owned());
        }
        let (mut schema, mut codec) = (None, BlockCodec::Null);
        loop {
            let mut entries = self.long()?;
            if entries == 0 {
                break;
            }
            if entries < 0 {
                entries = entries
                    .checked_neg()
                    .ok_or("its header states an impossible number of entries")?;
                self.length()?;
            }
            for _ in 0..entries {
                let key = self.entry()?;
                let value = self.entry()?;
                match key.as_slice() {
                    b"avro.schema" => schema = Some(value),
                    b"avro.codec" => codec = BlockCodec::parse(&value)?,
                    _ => {}
                }
            }
        }
        Ok(ContainerHeader {
            schema: schema.ok_or("its header has no schema")?,
            codec,
            sync: self.exact()?,
        })
    }

    /// Reads a key or a value of the header's metadata.
    fn entry(&mut self) -> Result<Vec<u8>, String> {
        let length = self.length()?;
        if length > MAX_HEADER_BYTES || self.at > MAX_HEADER_BYTES {
            return Err(format!(
                "its header is longer than {MAX_HEADER_BYTES} bytes"
            ));
        }
        self.take(length)
    }

    /// Skips a block and returns the number of rows that the block states.
    pub(super) fn skip_block(&mut self, header: &ContainerHeader) -> Result<u64, String> {
        let rows = self.length()?;
        let bytes = self.length()?;
        // Each row takes at least one byte, so a block has at most as many rows as decompressed
        // bytes.
        let most = if header.codec == BlockCodec::Null {
            bytes
        } else {
            MAX_BLOCK_BYTES
        };
        if rows > most {
            return Err(format!("it states {rows} rows in {bytes} bytes"));
        }
        if rows > 0 {
            self.skip(bytes)?;
        } else {
            // A block that states no rows is never read later, so its bytes are checked here.
            let data = header.codec.decompress(self.take(bytes)?)?;
            if !data.is_empty() {
                return Err(format!(
                    "it states 0 rows, but holds {} bytes of data",
                    data.len()
                ));
            }
        }
        self.sync(header)?;
        Ok(rows)
    }

    /// Reads a block. Returns the number of rows that the block states, and the stored (compressed)
    /// bytes of its rows.
    pub(super) fn block(&mut self, header: &ContainerHeader) -> Result<(u64, Vec<u8>), String> {
        let rows = self.length()?;
        let bytes = self.length()?;
        let stored = self.take(bytes)?;
        self.sync(header)?;
        Ok((rows, stored))
    }

    fn sync(&mut self, header: &ContainerHeader) -> Result<(), String> {
        if self.exact::<SYNC_BYTES>()? == header.sync {
            Ok(())
        } else {
            Err("it does not end with the file's sync marker".to_owned())
        }
    }
}
