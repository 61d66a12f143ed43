//! Seek indexes: places in the coded data of a file, from which decoding can begin.

use crate::header::{JpegHeader, MAX_COMPONENTS};

/// Number of MCUs from one seek point to the next.
///
/// At 8, the bytes of an index are about 2 % of a photo's (`benches/decode.rs` prints the figure), and
/// about 4 MCUs of a row are decoded in vain.
pub(crate) const POINT_DISTANCE: usize = 8;

/// State of a decoder before an MCU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SeekPoint {
    /// Number of bits before the MCU, from the first coded byte on, with stuffed bytes and markers.
    /// Offsets in the file as it is let a decoder jump without a look at the bytes before them.
    pub(crate) bits: u64,
    /// DC values of the last blocks, in the order of the scan's components.
    pub(crate) predictions: [i16; MAX_COMPONENTS],
}

/// Places in the coded data of one file, which let a decoder jump to a region.
///
/// [`RegionDecoder::decode`](crate::RegionDecoder::decode) records a point every 8 MCUs while it
/// decodes, and continues where the index ends. Decoding with an index, whatever it covers, has the
/// result of decoding without one. A point takes 16 bytes of memory, and about 5 as
/// [bytes](Self::to_bytes).
///
/// An index belongs to the bytes of its file. It is checked for its form only, so a caller who
/// stores indexes must find them by content (a hash of the file): with the index of other bytes,
/// decoding is safe and takes no longer than without one, but its pixels are arbitrary.
///
/// ```no_run
/// use forebay_jpeg::{RegionDecoder, InstructionSet, JpegHeader, PixelFormat, PixelRegion, SeekIndex};
///
/// let file = std::fs::read("photo.jpg")?;
/// let header = JpegHeader::read(&file)?;
/// let mut decoder = RegionDecoder::new(InstructionSet::best());
/// // None for a progressive file, and for one of several scans.
/// let mut index = SeekIndex::new(&header);
/// for y in [0, 100] {
///     let region = PixelRegion { x: 10, y, width: 100, height: 50 };
///     let mut pixels = vec![0; region.width * region.height * 3];
///     let format = PixelFormat::Rgb;
///     let decoded = decoder.decode(&file, &header, region, format, index.as_mut(), &mut pixels)?;
/// }
/// if let Some(index) = index {
///     std::fs::write("photo.index", index.to_bytes())?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The default index fits no file; [`reset`](Self::reset) or [`load`](Self::load) makes it that of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeekIndex {
    /// Number of components of the scan.
    components: usize,
    /// Number of MCUs of the scan.
    mcus: usize,
    /// The point of each [`POINT_DISTANCE`]th MCU after the first, up to the last one known.
    points: Vec<SeekPoint>,
    /// True if damage follows the last point.
    ///
    /// No point follows damage, so what is jumped over was decoded without a finding, and a point
    /// needs no state of a damaged reader (one that is exhausted, say). Regions after the damage
    /// are decoded from the last point before it.
    has_damage: bool,
}

impl SeekIndex {
    /// Creates an index without points. `None` for a file that can have none: a progressive one, or
    /// one whose components are in several scans.
    pub fn new(header: &JpegHeader) -> Option<Self> {
        let mut index = Self::default();
        index.reset(header).then_some(index)
    }

    /// Replaces this index by the one that [`new`](Self::new) creates, in the memory that it has. Returns false for
    /// a file that can have none; the index fits no file then.
    pub fn reset(&mut self, header: &JpegHeader) -> bool {
        let scan = header.only_scan();
        let (across, down) = scan.unwrap_or_default();
        self.components = header.components.len();
        self.mcus = across * down;
        self.points.clear();
        self.has_damage = false;
        scan.is_some()
    }

    /// Number of bytes of the index's memory.
    pub const fn memory(&self) -> usize {
        self.points.capacity() * size_of::<SeekPoint>()
    }

    /// Number of points. It grows only when a region is decoded that ends after the last one.
    pub const fn points(&self) -> usize {
        self.points.len()
    }

    /// True if the index does not grow any more: it covers the file, or damage follows.
    pub const fn is_complete(&self) -> bool {
        self.has_damage || self.points.len() == self.most_points()
    }

    /// Number of points of the whole file.
    pub(crate) const fn most_points(&self) -> usize {
        self.mcus.saturating_sub(1) / POINT_DISTANCE
    }

    /// Number of components that a point has predictions of.
    pub(crate) const fn components(&self) -> usize {
        self.components
    }

    pub(crate) fn as_points(&self) -> &[SeekPoint] {
        &self.points
    }

    pub(crate) const fn has_damage(&self) -> bool {
        self.has_damage
    }

    /// True if the index may be of a file with this header.
    pub(crate) fn fits(&self, header: &JpegHeader) -> bool {
        let is_alike = |(across, down)| across * down == self.mcus;
        header.components.len() == self.components && header.only_scan().is_some_and(is_alike)
    }

    /// Returns the last known point at or before an MCU, and the MCU that it precedes.
    pub(crate) fn at_or_before(&self, mcu: usize) -> (usize, SeekPoint) {
        let number = (mcu / POINT_DISTANCE).min(self.points.len());
        let point = number.checked_sub(1).map(|i| self.points[i]);
        (number * POINT_DISTANCE, point.unwrap_or_default())
    }

    /// Returns the number of bits up to the first point at or after an MCU, if that is known.
    pub(crate) fn bits_before(&self, mcu: usize) -> Option<u64> {
        let number = mcu.div_ceil(POINT_DISTANCE).checked_sub(1)?;
        self.points.get(number).map(|point| point.bits)
    }

    /// Returns the MCU of the next point to be recorded; `None` for a complete index.
    pub(crate) const fn next(&self) -> Option<usize> {
        if self.is_complete() {
            None
        } else {
            Some((self.points.len() + 1) * POINT_DISTANCE)
        }
    }

    /// Adds the next point.
    pub(crate) fn push(&mut self, point: SeekPoint) {
        self.points.push(point);
    }

    /// Ends the index before damage, unless the damage is after the last possible point.
    pub(crate) const fn close(&mut self) {
        self.has_damage = self.points.len() < self.most_points();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the headers of an image of 8 rows without subsampling.
    pub(crate) fn headers(components: u8, width: u16) -> Vec<u8> {
        let [high, low] = width.to_be_bytes();
        let length = 8 + 3 * components;
        let mut file = vec![
            0xff, 0xd8, 0xff, 0xc0, 0, length, 8, 0, 8, high, low, components,
        ];
        file.extend((0..components).flat_map(|id| [id, 0x11, 0]));
        file.extend([0xff, 0xda, 0, 6 + 2 * components, components]);
        file.extend((0..components).flat_map(|id| [id, 0]));
        file.extend([0, 63, 0]);
        file
    }

    /// Returns the index of a file with these points, after which there is damage or not.
    pub(crate) fn index_of(
        header: &JpegHeader,
        points: &[SeekPoint],
        has_damage: bool,
    ) -> SeekIndex {
        let mut index = SeekIndex::new(header).unwrap();
        points.iter().for_each(|&point| index.push(point));
        if has_damage {
            index.close();
        }
        index
    }

    #[test]
    fn points_are_found_by_their_mcus() {
        let header = JpegHeader::read(&headers(1, 8 * 26)).unwrap();
        let point = |bits| SeekPoint {
            bits,
            predictions: [1; 4],
        };
        let mut index = index_of(&header, &[point(100), point(250)], false);
        let found = [0, 7, 8, 15, 16, 25].map(|mcu| index.at_or_before(mcu));
        let (zero, one, two) = ((0, SeekPoint::default()), (8, point(100)), (16, point(250)));
        assert_eq!(found, [zero, zero, one, one, two, two]);
        let found = [1, 8, 9, 16, 17].map(|mcu| index.bits_before(mcu));
        assert_eq!(found, [Some(100), Some(100), Some(250), Some(250), None]);
        assert_eq!(index.next(), Some(24));
        index.push(point(300));
        assert_eq!((index.next(), index.is_complete()), (None, true));
        assert!(index.reset(&header));
        assert_eq!(index, SeekIndex::new(&header).unwrap());
    }
}
