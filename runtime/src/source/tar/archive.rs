//! Reads the file of a tar archive, which may be compressed by gzip.

use std::io::{self, BufReader, Read, Seek};

use flate2::read::MultiGzDecoder;

use super::super::content::{ContentHash, ContentHasher, HashedRead, read_tail};
use super::super::input::Input;

const READ_BYTES: usize = 16 << 10;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A reader of the bytes of a tar archive.
pub(in crate::source) trait TarInput: Read {
    /// Skips `bytes` bytes. Fails with [`io::ErrorKind::UnexpectedEof`] if fewer bytes are left.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// The open file of a tar archive. Offsets count decompressed bytes.
#[derive(Debug)]
pub(in crate::source) struct Archive {
    input: ArchiveInput,
    /// The offset of the next byte.
    at: u64,
}

#[derive(Debug)]
enum ArchiveInput {
    Plain { file: BufReader<Input>, size: u64 },
    Compressed(Box<MultiGzDecoder<BufReader<HashedRead<Input>>>>),
}

impl Archive {
    /// Starts to read the archive in a file of `size` bytes. The file counts as compressed if its
    /// first bytes are those of gzip; its name does not matter.
    pub(in crate::source) fn new(
        mut file: Input,
        size: u64,
        hasher: ContentHasher,
    ) -> io::Result<Self> {
        let mut magic = Vec::new();
        let start = GZIP_MAGIC.len() as u64;
        { &mut file }.take(start).read_to_end(&mut magic)?;
        file.rewind()?;
        if magic != GZIP_MAGIC {
            return Ok(Self::plain(file, size));
        }
        file.read_only(0..size)?;
        let file = HashedRead::new(file, hasher);
        let file = BufReader::with_capacity(READ_BYTES, file);
        let input = ArchiveInput::Compressed(Box::new(MultiGzDecoder::new(file)));
        Ok(Self { input, at: 0 })
    }

    /// Starts to read the archive in a file of `size` bytes, which is not compressed.
    pub(in crate::source) fn plain(file: Input, size: u64) -> Self {
        let file = BufReader::with_capacity(READ_BYTES, file);
        Self {
            input: ArchiveInput::Plain { file, size },
            at: 0,
        }
    }

    pub(in crate::source) const fn is_compressed(&self) -> bool {
        matches!(self.input, ArchiveInput::Compressed(_))
    }

    /// Returns the content hash of an archive that was read to its end. For a compressed file, the
    /// hash covers all bytes of the file. Otherwise the hash covers the archive's headers, which
    /// were added to `headers`, and the end of the file.
    pub(in crate::source) fn content(self, mut headers: ContentHasher) -> io::Result<ContentHash> {
        match self.input {
            ArchiveInput::Compressed(input) => Ok(input.get_ref().get_ref().hash()),
            ArchiveInput::Plain { file, size } => {
                headers.update(&read_tail(&mut file.into_inner(), size, 0)?);
                Ok(headers.finish())
            }
        }
    }

    /// Appends to `bytes` the `size` bytes of the archive that begin at `offset`. In a compressed
    /// archive, the offsets of successive calls must ascend.
    pub(in crate::source) fn read_at(
        &mut self,
        offset: u64,
        size: u64,
        bytes: &mut Vec<u8>,
    ) -> io::Result<()> {
        match offset.checked_sub(self.at) {
            Some(gap) => self.skip(gap)?,
            None => match &mut self.input {
                ArchiveInput::Compressed(_) => return Err(io::ErrorKind::InvalidInput.into()),
                ArchiveInput::Plain { file, .. } => {
                    file.seek(io::SeekFrom::Start(offset))?;
                    self.at = offset;
                }
            },
        }
        let read = self.by_ref().take(size).read_to_end(bytes)?;
        if read as u64 == size {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.input {
            ArchiveInput::Plain { file, .. } => file.read(buffer),
            ArchiveInput::Compressed(input) => input.read(buffer),
        }?;
        self.at += read as u64;
        Ok(read)
    }
}

impl TarInput for Archive {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let cut_off = || io::Error::from(io::ErrorKind::UnexpectedEof);
        match &mut self.input {
            ArchiveInput::Plain { file, size } => {
                let end = self.at.checked_add(bytes).filter(|end| end <= size);
                self.at = end.ok_or_else(cut_off)?;
                file.seek_relative(i64::try_from(bytes).map_err(|_| cut_off())?)
            }
            ArchiveInput::Compressed(_) => {
                let skipped = io::copy(&mut self.by_ref().take(bytes), &mut io::sink())?;
                { skipped == bytes }.then_some(()).ok_or_else(cut_off)
            }
        }
    }
}
