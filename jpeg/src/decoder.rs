//! The decoder: reads a file's scans one after another, and writes the pixels of a region.

use arrayvec::ArrayVec;

use crate::buffers::ScanBuffers;
use crate::error::HeaderError;
use crate::format::{Decoded, PixelFormat, Target};
use crate::header::{JpegHeader, MAX_COMPONENTS};
use crate::idct::CoefficientBlock;
use crate::marker::{self, Segment, Segments};
use crate::mcu_runs::ScanSource;
use crate::pixels::LineBuffers;
use crate::plane::Plane;
use crate::progressive::{CoefficientPlane, ProgressiveScan};
use crate::region::PixelRegion;
use crate::scan::{ScanHeader, TableCache};
use crate::seek_index::SeekIndex;
use crate::sequential::SequentialScan;
use crate::simd::InstructionSet;

/// Largest number of scans of a progressive file, which bounds the time that a hostile one takes.
/// Encoders write about ten.
const MAX_SCANS: usize = 200;

/// Decodes files one after another, and reuses its buffers.
#[derive(Debug)]
pub struct RegionDecoder {
    simd: InstructionSet,
    tables: TableCache,
    buffers: ScanBuffers,
    lines: LineBuffers,
    /// Coefficients of progressive files.
    coefficients: [CoefficientPlane; MAX_COMPONENTS],
}

impl RegionDecoder {
    /// Creates a decoder that uses these instructions.
    pub fn new(simd: InstructionSet) -> Self {
        Self {
            simd,
            tables: TableCache::default(),
            buffers: ScanBuffers::default(),
            lines: LineBuffers::default(),
            coefficients: Default::default(),
        }
    }

    /// Number of bytes of the decoder's buffers.
    pub fn bytes(&self) -> usize {
        let planes: usize = self.buffers.planes.iter().map(Plane::bytes).sum();
        let coefficients = self.coefficients.iter().map(CoefficientPlane::bytes);
        planes + coefficients.sum::<usize>() + self.buffers.coded.bytes()
    }

    /// Decodes a region of a file into `out`, in rows without padding.
    ///
    /// The pixels are those of the region in the whole image, even if data is damaged: bits after
    /// the end of a segment are zeros, blocks after it have no coefficients (gray), an invalid code
    /// is a 0 of 17 bits, and segments between restart markers count in their order.
    ///
    /// With an index, decoding jumps over MCUs beside the region that the index covers. If the
    /// region ends after the index, all MCUs between are read, and the index is extended. The result
    /// is the same.
    ///
    /// # Errors
    ///
    /// An error of the scans' headers and tables, or [`HeaderError::Invalid`] for a region outside
    /// the image, an index that was not made for a header of these MCUs, or a length of `out` that is
    /// not `region.width * region.height * format.channels(header)`.
    pub fn decode(
        &mut self,
        file: &[u8],
        header: &JpegHeader,
        region: PixelRegion,
        format: PixelFormat,
        index: Option<&mut SeekIndex>,
        out: &mut [u8],
    ) -> Result<Decoded, HeaderError> {
        let target = Target::new(header, region, format, out.len())?;
        if index.as_ref().is_some_and(|index| !index.fits(header)) {
            return Err(HeaderError::Invalid("seek index"));
        }
        if header.is_progressive() {
            self.progressive(file, &target, out)
        } else {
            self.sequential(file, &target, index, out)
        }
    }

    /// Decodes scans until every needed component was in one.
    fn sequential(
        &mut self,
        file: &[u8],
        target: &Target<'_>,
        mut index: Option<&mut SeekIndex>,
        out: &mut [u8],
    ) -> Result<Decoded, HeaderError> {
        let mut tables = target.header.tables.clone();
        let mut segments = Segments::new(file, target.header.scan);
        let mut missing: ArrayVec<usize, MAX_COMPONENTS> = (0..target.extents.len()).collect();
        let mut is_damaged = false;
        let mut rows = 0;
        while !missing.is_empty() {
            let Some(segment) = next_segment(&mut segments, missing.len() == target.extents.len())?
            else {
                is_damaged = true;
                break;
            };
            if segment.kind != marker::SOS {
                tables.read(&segment)?;
                continue;
            }
            let scan = ScanHeader::read(&segment, target.header)?;
            let before = missing.len();
            missing.retain(|&mut m| scan.components.iter().all(|c| c.index != m));
            if missing.len() == before {
                // No component of the scan is needed.
                let after = self.buffers.coded.take(file, segment.end, 0);
                segments = Segments::new(file, after);
                continue;
            }
            let found = scan.tables(&tables, &mut self.tables)?;
            let is_only = before == target.extents.len() && missing.is_empty();
            let work = SequentialScan::new(target, &scan, &found, &tables, is_only)?;
            work.make_room(&mut self.buffers);
            let (simd, lines) = (self.simd, &mut self.lines);
            let mut write = |planes: &[Plane; MAX_COMPONENTS], ready: usize| {
                lines.write(simd, planes, target, rows..ready, out);
                rows = ready;
            };
            let write: &mut dyn FnMut(&[Plane; MAX_COMPONENTS], usize) = &mut write;
            let write = if is_only { Some(write) } else { None };
            let source = ScanSource {
                file,
                start: segment.end,
                // Its scan has all components, so this is the only one.
                index: index.take(),
            };
            let decoded = work.run(simd, source, &self.tables, &mut self.buffers, write);
            is_damaged |= decoded.is_damaged;
            segments = Segments::new(file, decoded.end);
        }
        for index in missing {
            self.buffers.planes[index].clear(&target.extents[index]);
        }
        let rows = rows..target.region.height;
        { &mut self.lines }.write(self.simd, &self.buffers.planes, target, rows, out);
        Ok(Decoded { is_damaged })
    }

    /// Decodes all scans, and then computes the pixels.
    fn progressive(
        &mut self,
        file: &[u8],
        target: &Target<'_>,
        out: &mut [u8],
    ) -> Result<Decoded, HeaderError> {
        let header = target.header;
        let mut tables = header.tables.clone();
        let mut segments = Segments::new(file, header.scan);
        let mut quantization: [Option<CoefficientBlock>; MAX_COMPONENTS] = [None; MAX_COMPONENTS];
        for (index, plane) in { &mut self.coefficients }.iter_mut().enumerate() {
            plane.reset(header, index);
        }
        let mut is_damaged = false;
        let mut scans = 0;
        while let Some(segment) = next_segment(&mut segments, scans == 0)? {
            if segment.kind != marker::SOS {
                tables.read(&segment)?;
                continue;
            }
            scans += 1;
            if scans > MAX_SCANS {
                return Err(HeaderError::Invalid("number of scans"));
            }
            let scan = ScanHeader::read(&segment, header)?;
            for component in &scan.components {
                let known = &mut quantization[component.index];
                if known.is_none() {
                    *known = Some(tables.quantization_of(header, component.index)?);
                }
            }
            let work = ProgressiveScan::new(&scan, &tables)?;
            let is_needed = |i: usize| i < target.extents.len();
            let is_needed = scan.components.iter().any(|c| is_needed(c.index));
            let count = if is_needed { work.segments() } else { 0 };
            let after = self.buffers.coded.take(file, segment.end, count);
            if is_needed {
                let ScanBuffers { coded, tail, .. } = &mut self.buffers;
                is_damaged |= work.decode(coded, tail, &mut self.coefficients);
            }
            segments = Segments::new(file, after);
        }
        for (index, extent) in target.extents.iter().enumerate() {
            let plane = &mut self.buffers.planes[index];
            match quantization[index] {
                Some(quantization) => {
                    let source = &self.coefficients[index];
                    source.transform(self.simd, extent, &quantization, plane);
                }
                None => {
                    is_damaged = true;
                    plane.clear(extent);
                }
            }
        }
        let rows = 0..target.region.height;
        { &mut self.lines }.write(self.simd, &self.buffers.planes, target, rows, out);
        Ok(Decoded { is_damaged })
    }
}

/// Returns the next segment; `None` at the end of the image, and where the file ends early after
/// its first scan.
fn next_segment<'a>(
    segments: &mut Segments<'a>,
    is_first_scan: bool,
) -> Result<Option<Segment<'a>>, HeaderError> {
    match segments.next() {
        Ok(segment) if segment.kind == marker::EOI => Ok(None),
        Ok(segment) => Ok(Some(segment)),
        Err(HeaderError::Truncated) if !is_first_scan => Ok(None),
        Err(error) => Err(error),
    }
}
