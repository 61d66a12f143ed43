//! Records seek points while MCUs are decoded.

use crate::header::MAX_COMPONENTS;
use crate::marker;
use crate::seek_index::{SeekIndex, SeekPoint};

/// Extends an index with the points of MCUs that are decoded one after another.
#[derive(Debug)]
pub(crate) struct SeekRecorder<'a> {
    index: &'a mut SeekIndex,
    /// The scan's coded data, as the file stores it.
    stored: &'a [u8],
    cursor: StoredCursor,
}

impl<'a> SeekRecorder<'a> {
    /// Creates the recorder of an index. `stored` begins with the scan's first coded byte, and
    /// `bits` of it precede the MCUs to be decoded.
    pub(crate) const fn new(index: &'a mut SeekIndex, stored: &'a [u8], bits: u64) -> Self {
        let cursor = StoredCursor::new((bits / 8) as usize);
        Self {
            index,
            stored,
            cursor,
        }
    }

    /// Returns the MCU of the next point; `usize::MAX` if there is none.
    pub(crate) fn next(&self) -> usize {
        self.index.next().unwrap_or(usize::MAX)
    }

    /// Adds the next point, which is after a number of bits of a segment. Segments are counted from
    /// the one in which the MCUs began, and the bits of that one from the byte in which they began.
    pub(crate) fn push(&mut self, segment: usize, bits: usize, predictions: [i16; MAX_COMPONENTS]) {
        match self.cursor.seek(self.stored, segment, bits / 8) {
            Some(at) => self.index.push(SeekPoint {
                bits: at as u64 * 8 + bits as u64 % 8,
                predictions,
            }),
            // The segment is missing.
            None => self.close(),
        }
    }

    /// Ends the index before damage.
    pub(crate) const fn close(&mut self) {
        self.index.close();
    }
}

/// A place in coded data with stuffed bytes and restart markers.
///
/// It walks the stored bytes a second time, because a list of the stuffed ones would take more memory
/// than the data in the worst case.
#[derive(Debug)]
struct StoredCursor {
    /// Offset in the stored data.
    at: usize,
    /// Number of the segment, and of its bytes before the place without stuffed ones.
    segment: usize,
    passed: usize,
}

impl StoredCursor {
    const fn new(at: usize) -> Self {
        Self {
            at,
            segment: 0,
            passed: 0,
        }
    }

    /// Moves on to a byte of a segment, and returns its offset in the stored data; `None` if it is
    /// missing.
    fn seek(&mut self, stored: &[u8], segment: usize, offset: usize) -> Option<usize> {
        while self.segment < segment {
            self.advance(stored, usize::MAX);
            let kind = stored.get(self.after_fill(stored))?;
            if !(marker::RST0..=marker::RST7).contains(kind) {
                return None;
            }
            self.at = self.after_fill(stored) + 1;
            self.segment += 1;
            self.passed = 0;
        }
        self.advance(stored, offset);
        (self.passed == offset).then_some(self.at)
    }

    /// Moves on until so many bytes of the segment are passed, or to its end.
    fn advance(&mut self, stored: &[u8], offset: usize) {
        while self.passed < offset {
            let rest = stored.get(self.at..).unwrap_or_default();
            let part = &rest[..rest.len().min(offset - self.passed)];
            let length = memchr::memchr(0xff, part).unwrap_or(part.len());
            self.at += length;
            self.passed += length;
            if length == part.len() {
                if part.len() == rest.len() {
                    return;
                }
                continue;
            }
            let second = self.after_fill(stored);
            if stored.get(second) != Some(&0) {
                return;
            }
            self.at = second + 1;
            self.passed += 1;
        }
    }

    /// Returns the offset after bytes of 0xff: that of a marker's second byte.
    fn after_fill(&self, stored: &[u8]) -> usize {
        let rest = stored.get(self.at..).unwrap_or_default();
        self.at + rest.iter().take_while(|&&b| b == 0xff).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the offset of each byte of each segment, and of each segment's end.
    fn offsets(stored: &[u8]) -> Vec<Vec<usize>> {
        let mut segments = vec![Vec::new()];
        let mut at = 0;
        loop {
            segments.last_mut().unwrap().push(at);
            if stored.get(at).is_some_and(|&b| b != 0xff) {
                at += 1;
                continue;
            }
            let second = (at..stored.len()).find(|&i| stored[i] != 0xff);
            match second.map(|i| stored[i]) {
                Some(0) => {}
                Some(marker::RST0..=marker::RST7) => segments.push(Vec::new()),
                _ => return segments,
            }
            at = second.unwrap() + 1;
        }
    }

    proptest! {
        #[test]
        fn places_are_those_of_a_walk(
            stored in prop::collection::vec(prop::sample::select(&[1, 0, 0xff, 0xd3][..]), 0..40),
            steps in prop::collection::vec((0usize..3, 0usize..9), 1..6),
        ) {
            let offsets = offsets(&stored);
            let mut cursor = StoredCursor::new(0);
            let (mut segment, mut offset) = (0, 0);
            for (segments, bytes) in steps {
                segment += segments;
                offset = bytes + if segments == 0 { offset } else { 0 };
                let expected = offsets.get(segment).and_then(|s| s.get(offset)).copied();
                let found = cursor.seek(&stored, segment, offset);
                prop_assert_eq!(found, expected);
                if found.is_none() {
                    break;
                }
            }
        }
    }
}
