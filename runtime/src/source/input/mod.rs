//! The files of sources: on this machine, or objects of a store. Readers of formats do not see the
//! difference.
//!
//! | module | contents |
//! |---|---|
//! | `file` | a file's place, and the state that it had when it was listed |
//! | `object` | an open object: reads that fetch ahead as far as the reader goes |
//! | `kept` | bytes that were fetched before they are read |
//! | `fetch` | fetches bytes of several objects at a time |
//! | `wait` | waits for requests on threads for blocking work |
//! | `shared` | an open file that several readers share |
//! | `failure` | failures of a store below a parser, which knows only I/O errors |

mod failure;
mod fetch;
mod file;
mod kept;
mod object;
mod shared;
#[cfg(test)]
mod tests;
mod wait;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use failure::with_store_failures;
pub(crate) use fetch::fetch_all;
pub(crate) use file::InputFile;
pub(crate) use kept::KeptBytes;
use object::OpenObject;
pub(crate) use shared::SharedInput;

/// An open file. It is read by blocking calls on threads for blocking work.
#[derive(Debug)]
pub(crate) struct Input(Opened);

#[derive(Debug)]
enum Opened {
    Local(File),
    Object(OpenObject),
}

impl Input {
    /// Announces that only `range` is read, from its start to its end. Of an object, the next part
    /// is then fetched while one is read, and nothing behind the end.
    pub(crate) fn read_only(&mut self, range: Range<u64>) -> io::Result<()> {
        match &mut self.0 {
            Opened::Local(file) => file.seek(SeekFrom::Start(range.start)).map(drop),
            Opened::Object(object) => {
                object.read_only(range);
                Ok(())
            }
        }
    }

    /// Fetches `ranges` of an object by few requests, several at a time, for the reads that follow.
    pub(crate) fn fetch(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        match &mut self.0 {
            Opened::Local(_) => Ok(()),
            Opened::Object(object) => object.fetch(ranges),
        }
    }

    /// Reads from `kept`, which was fetched from this object, where it has the bytes.
    pub(crate) fn use_kept(&mut self, kept: &Arc<KeptBytes>) {
        if let Opened::Object(object) = &mut self.0 {
            object.use_kept(kept);
        }
    }

    /// Reads `length` bytes from the offset `start`. The caller has checked that they lie within
    /// the file.
    pub(crate) fn read_at(&mut self, start: u64, length: u64) -> io::Result<Bytes> {
        match &mut self.0 {
            Opened::Local(file) => {
                let mut bytes = vec![0; length as usize];
                file.seek(SeekFrom::Start(start))?;
                file.read_exact(&mut bytes)?;
                Ok(bytes.into())
            }
            Opened::Object(object) => object.read_at(start, length),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Opened::Local(file) => file.read(buffer),
            Opened::Object(object) => object.read(buffer),
        }
    }
}

impl Seek for Input {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.0 {
            Opened::Local(file) => file.seek(to),
            Opened::Object(object) => object.seek(to),
        }
    }
}
