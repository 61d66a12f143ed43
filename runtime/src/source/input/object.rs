//! An open object, which is read by blocking calls.
//!
//! A read that continues where the last one ended, or a little later, fetches twice as many bytes
//! as the one before, and any other one begins anew with few bytes. So a reader that skips from
//! header to header fetches little, and one that reads all of a file needs few requests.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datafusion::common::runtime::SpawnedTask;

use super::failure::failed;
use super::kept::KeptBytes;
use super::wait::{wait, wait_for};
use crate::objects::{GAP_BYTES, MAX_PART_BYTES, Object, StoreError};
use crate::task;

/// Number of bytes that a read fetches which does not continue the last one.
const FIRST_BYTES: u64 = 64 << 10;

/// Size of a part that is fetched ahead, and the number of such parts.
const AHEAD_BYTES: u64 = 4 << 20;
const AHEAD_PARTS: usize = 2;

/// An open object.
#[derive(Debug)]
pub(super) struct OpenObject {
    object: Arc<Object>,
    /// Bytes that were fetched on request.
    kept: Option<Arc<KeptBytes>>,
    /// Offset of the next byte that [`Read`] returns.
    at: u64,
    /// The end of what is read.
    end: u64,
    /// The bytes that were fetched last, and their offset.
    window: (u64, Bytes),
    /// Size of the next window if the next read continues the last one.
    next_bytes: u64,
    /// The parts that are being fetched ahead, in order. Their ends and starts meet, and the first
    /// one begins at the end of the window.
    ahead: VecDeque<Part>,
    /// True if all bytes up to `end` are read in order.
    is_sequential: bool,
}

#[derive(Debug)]
struct Part {
    range: Range<u64>,
    read: SpawnedTask<Result<Bytes, StoreError>>,
}

impl OpenObject {
    pub(super) fn new(object: Arc<Object>) -> Self {
        Self {
            kept: None,
            at: 0,
            end: object.size(),
            window: (0, Bytes::new()),
            next_bytes: FIRST_BYTES,
            ahead: VecDeque::new(),
            is_sequential: false,
            object,
        }
    }

    pub(super) fn read_only(&mut self, range: Range<u64>) {
        self.at = range.start;
        self.end = range.end.min(self.object.size());
        self.is_sequential = true;
        self.ahead.clear();
    }

    pub(super) fn fetch(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        let is_kept = |kept: &Arc<KeptBytes>| ranges.iter().all(|range| kept.has(range));
        if self.kept.as_ref().is_some_and(is_kept) {
            return Ok(());
        }
        let fetched = wait(KeptBytes::fetch(&self.object, ranges))?;
        self.kept = Some(Arc::new(fetched));
        Ok(())
    }

    pub(super) fn use_kept(&mut self, kept: &Arc<KeptBytes>) {
        self.kept = Some(Arc::clone(kept));
    }

    pub(super) fn read_at(&mut self, start: u64, length: u64) -> io::Result<Bytes> {
        let available = self.available(start, length)?;
        if available.len() as u64 == length {
            return Ok(available);
        }
        let mut bytes = BytesMut::with_capacity(length as usize);
        bytes.extend_from_slice(&available);
        while (bytes.len() as u64) < length {
            let at = start + bytes.len() as u64;
            let left = length - bytes.len() as u64;
            let part = match self.available(at, left)? {
                none if none.is_empty() => {
                    wait(self.object.range(at..at + left.min(MAX_PART_BYTES)))?
                }
                some => some,
            };
            bytes.extend_from_slice(&part);
        }
        let bytes = bytes.freeze();
        if length <= FIRST_BYTES {
            self.window = (start, bytes.clone());
        }
        Ok(bytes)
    }

    /// Returns the bytes from `start` that are at hand, at most `length`.
    fn available(&self, start: u64, length: u64) -> io::Result<Bytes> {
        if let Some(kept) = &self.kept
            && let Some(bytes) = kept.read(start, length)?
        {
            return Ok(bytes);
        }
        let (first, window) = &self.window;
        let skip = start.checked_sub(*first).map(|skip| skip as usize);
        let Some(skip) = skip.filter(|&skip| skip < window.len()) else {
            return Ok(Bytes::new());
        };
        let end = window.len().min(skip.saturating_add(length as usize));
        Ok(window.slice(skip..end))
    }

    /// Fetches bytes that begin at `self.at`, which is not at hand.
    fn advance(&mut self) -> io::Result<()> {
        if self.is_sequential {
            return self.advance_in_order();
        }
        let window_end = self.window.0 + self.window.1.len() as u64;
        let continues = (window_end..=window_end + GAP_BYTES).contains(&self.at);
        let bytes = if continues {
            self.next_bytes
        } else {
            FIRST_BYTES
        };
        self.next_bytes = (bytes * 2).min(MAX_PART_BYTES);
        let range = self.at..self.end.min(self.at + bytes);
        self.window = (self.at, wait(self.object.range(range))?);
        Ok(())
    }

    fn advance_in_order(&mut self) -> io::Result<()> {
        while let Some(part) = self.ahead.front() {
            if part.range.contains(&self.at) {
                break;
            }
            self.ahead.pop_front();
        }
        let mut next = self.ahead.back().map_or(self.at, |part| part.range.end);
        while self.ahead.len() <= AHEAD_PARTS && next < self.end {
            let range = next..self.end.min(next + AHEAD_BYTES);
            next = range.end;
            let object = Arc::clone(&self.object);
            let wanted = range.clone();
            let read = task::owned(async move { object.range(wanted).await });
            self.ahead.push_back(Part { range, read });
        }
        if let Some(part) = self.ahead.pop_front() {
            let bytes = wait_for(part.read.join()).map_err(io::Error::other)?;
            self.window = (part.range.start, bytes.map_err(failed)?);
        }
        Ok(())
    }
}

impl Read for OpenObject {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.end.saturating_sub(self.at).min(buffer.len() as u64);
        if length == 0 {
            return Ok(0);
        }
        let mut bytes = self.available(self.at, length)?;
        if bytes.is_empty() {
            self.advance()?;
            bytes = self.available(self.at, length)?;
        }
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}

impl Seek for OpenObject {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.object.size().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
