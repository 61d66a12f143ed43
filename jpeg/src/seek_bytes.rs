//! The serialised form of seek indexes.
//!
//! A byte for the version, a byte for flags, the number of points, and for each point the difference
//! of its bits and of its predictions to those of the point before. Numbers are varints of 7 bits in
//! a byte, the lowest first (LEB128); differences of predictions are signed (zigzag).

use crate::error::SeekIndexError;
use crate::header::JpegHeader;
use crate::seek_index::{SeekIndex, SeekPoint};

/// Version of the form. Bytes of other versions are refused.
const VERSION: u8 = 1;

/// Flag: damage follows the last point.
const DAMAGE: u8 = 1;

/// Largest number of bits before a point. The sum of bits and some bytes never overflows.
const MAX_BITS: u64 = 1 << 48;

impl SeekIndex {
    /// Returns the index as bytes: about 2 % of the bytes of a photo.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Five bytes are typical for a point of three components.
        let mut bytes = Vec::with_capacity(8 + self.points() * 6);
        bytes.push(VERSION);
        bytes.push(if self.has_damage() { DAMAGE } else { 0 });
        write(&mut bytes, self.points() as u64);
        let mut before = SeekPoint::default();
        for point in self.as_points() {
            write(&mut bytes, point.bits - before.bits);
            let pairs = point.predictions.iter().zip(before.predictions);
            for (value, before) in pairs.take(self.components()) {
                let difference = value.wrapping_sub(before);
                write(
                    &mut bytes,
                    u64::from((difference << 1 ^ difference >> 15) as u16),
                );
            }
            before = *point;
        }
        bytes
    }

    /// Reads the index of a file with this header.
    ///
    /// The form is checked, and the number of points is bounded by the header's size, but the points
    /// themselves are believed: see [`SeekIndex`].
    ///
    /// # Errors
    ///
    /// A [`SeekIndexError`] for bytes that [`SeekIndex::to_bytes`] does not write for such a file.
    pub fn from_bytes(header: &JpegHeader, bytes: &[u8]) -> Result<Self, SeekIndexError> {
        let mut index = Self::default();
        index.load(header, bytes)?;
        Ok(index)
    }

    /// Replaces this index by the one that [`from_bytes`](Self::from_bytes) returns, in the memory that it has.
    ///
    /// # Errors
    ///
    /// Those of `from_bytes`; the index fits no file then.
    pub fn load(&mut self, header: &JpegHeader, bytes: &[u8]) -> Result<(), SeekIndexError> {
        let read = self.load_points(header, bytes);
        if read.is_err() {
            *self = Self::default();
        }
        read
    }

    fn load_points(&mut self, header: &JpegHeader, bytes: &[u8]) -> Result<(), SeekIndexError> {
        if !self.reset(header) {
            return Err(SeekIndexError::NotSeekable);
        }
        let [version, flags, rest @ ..] = bytes else {
            return Err(SeekIndexError::Invalid);
        };
        if *version != VERSION {
            return Err(SeekIndexError::Version(*version));
        }
        let mut rest = rest;
        let count = read(&mut rest)?;
        // The number is checked before room is made.
        if *flags & !DAMAGE != 0 || count > self.most_points() as u64 {
            return Err(SeekIndexError::Invalid);
        }
        let components = self.components();
        let mut point = SeekPoint::default();
        for _ in 0..count {
            point.bits = point.bits.saturating_add(read(&mut rest)?);
            if point.bits > MAX_BITS {
                return Err(SeekIndexError::Invalid);
            }
            for value in point.predictions.iter_mut().take(components) {
                let coded = u16::try_from(read(&mut rest)?).map_err(|_| SeekIndexError::Invalid)?;
                let difference = (coded >> 1) as i16 ^ -((coded & 1) as i16);
                *value = value.wrapping_add(difference);
            }
            self.push(point);
        }
        if !rest.is_empty() {
            return Err(SeekIndexError::Invalid);
        }
        if *flags & DAMAGE != 0 {
            self.close();
        }
        let is_closed = self.has_damage() == (*flags & DAMAGE != 0);
        is_closed.then_some(()).ok_or(SeekIndexError::Invalid)
    }
}

fn write(bytes: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads a number of at most 49 bits, in its shortest form.
fn read(bytes: &mut &[u8]) -> Result<u64, SeekIndexError> {
    let mut value = 0;
    for shift in (0..49).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(SeekIndexError::Invalid)?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            let is_shortest = byte != 0 || shift == 0;
            return is_shortest.then_some(value).ok_or(SeekIndexError::Invalid);
        }
    }
    Err(SeekIndexError::Invalid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seek_index::tests::index_of;

    #[test]
    fn numbers_have_one_form() {
        for value in [0, 1, 127, 128, 16383, 16384, (1 << 49) - 1] {
            let mut bytes = Vec::new();
            write(&mut bytes, value);
            let mut rest = &*bytes;
            assert_eq!(read(&mut rest), Ok(value));
            assert_eq!(rest, []);
        }
        for wrong in [
            &[][..],
            &[128],
            &[128, 0],
            &[255; 8],
            &[255, 255, 255, 255, 255, 255, 255, 0],
        ] {
            assert_eq!(
                read(&mut &*wrong),
                Err(SeekIndexError::Invalid),
                "{wrong:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn points_are_read_as_written(
            steps in prop::collection::vec((0u64..1 << 20, any::<[i16; 3]>()), 0..9),
            has_damage: bool,
        ) {
            let file = crate::seek_index::tests::headers(3, 9 * 64);
            let header = JpegHeader::read(&file).unwrap();
            let mut bits = 0;
            let point = |(step, [a, b, c]): (u64, [i16; 3])| {
                bits += step;
                SeekPoint { bits, predictions: [a, b, c, 0] }
            };
            let points: Vec<SeekPoint> = steps.into_iter().map(point).collect();
            let index = index_of(&header, &points, has_damage);
            let bytes = index.to_bytes();
            prop_assert_eq!(&SeekIndex::from_bytes(&header, &bytes), &Ok(index.clone()));
            let mut reused = index_of(&header, &points[..points.len() / 2], true);
            prop_assert_eq!(reused.load(&header, &bytes), Ok(()));
            prop_assert_eq!(&reused, &index);
            prop_assert!(reused.load(&header, &bytes[..bytes.len() - 1]).is_err());
            prop_assert!(!reused.fits(&header));
        }
    }
}
