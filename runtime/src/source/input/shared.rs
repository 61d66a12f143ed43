//! An open file that several readers share, as the `parquet` crate needs it.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::errors::Result;
use parquet::file::reader::{ChunkReader, Length};

use super::Input;

/// An open file. Cheap to clone; all clones share what was fetched.
#[derive(Debug, Clone)]
pub(crate) struct SharedInput {
    input: Arc<Mutex<Input>>,
    size: u64,
}

/// Reads a [`SharedInput`] from an offset on.
#[derive(Debug)]
pub(crate) struct SharedRead {
    input: SharedInput,
    at: u64,
}

impl SharedInput {
    pub(crate) fn new(input: Input, size: u64) -> Self {
        let input = Arc::new(Mutex::new(input));
        Self { input, size }
    }

    /// Calls [`Input::read_at`].
    pub(crate) fn read_at(&self, start: u64, length: u64) -> io::Result<Bytes> {
        self.lock().read_at(start, length)
    }

    /// Calls `work` with the file.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Input) -> T) -> T {
        work(&mut self.lock())
    }

    /// Calls [`Input::fetch`].
    pub(crate) fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        self.lock().fetch(ranges)
    }

    fn lock(&self) -> MutexGuard<'_, Input> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Length for SharedInput {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for SharedInput {
    type T = BufReader<SharedRead>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let input = self.clone();
        Ok(BufReader::new(SharedRead { input, at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        Ok(self.read_at(start, length as u64)?)
    }
}

impl Read for SharedRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut input = self.input.lock();
        input.seek(SeekFrom::Start(self.at))?;
        let read = input.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}
