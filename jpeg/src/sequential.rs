//! A scan of whole coefficients: entropy decoding and inverse DCT, one row of MCUs at a time.

use std::ops::Range;

use crate::buffers::ScanBuffers;
use crate::error::HeaderError;
use crate::format::Target;
use crate::header::{DecodingTables, MAX_COMPONENTS};
use crate::huffman::Coders;
use crate::idct::CoefficientBlock;
use crate::plane::Plane;
use crate::scan::{ScanComponent, ScanHeader, TableCache};
use crate::segments::SegmentReader;
use crate::simd::{InstructionSet, Level};

/// Called with the planes and the number of the region's rows whose samples are there.
pub(crate) type WriteRows<'a> = &'a mut dyn FnMut(&[Plane; MAX_COMPONENTS], usize);

/// The decoding of one scan.
#[derive(Debug)]
pub(crate) struct SequentialScan<'a> {
    target: &'a Target<'a>,
    parts: Vec<ScanPart>,
    /// Number of MCUs in a row.
    across: usize,
    /// Needed columns and rows of MCUs.
    columns: Range<usize>,
    rows: Range<usize>,
    restart_interval: usize,
    /// True if no other scan is needed.
    is_only: bool,
}

/// A component of the scan.
#[derive(Debug)]
struct ScanPart {
    component: ScanComponent,
    is_needed: bool,
    /// Indexes of the tables.
    dc: usize,
    ac: usize,
    quantization: CoefficientBlock,
}

impl<'a> SequentialScan<'a> {
    /// Creates the decoding of a scan with the Huffman tables of its components.
    pub(crate) fn new(
        target: &'a Target<'a>,
        scan: &ScanHeader,
        found: &[(usize, usize)],
        tables: &DecodingTables,
        is_only: bool,
    ) -> Result<Self, HeaderError> {
        let (mut columns, mut rows) = ((usize::MAX, 0), (usize::MAX, 0));
        let mut parts = Vec::with_capacity(scan.components.len());
        for (component, &(dc, ac)) in scan.components.iter().zip(found) {
            let extent = target.extents.get(component.index);
            parts.push(ScanPart {
                component: *component,
                is_needed: extent.is_some(),
                dc,
                ac,
                quantization: tables.quantization_of(target.header, component.index)?,
            });
            if let Some(extent) = extent {
                let (width, height) = (component.h * 8, component.v * 8);
                columns.0 = columns.0.min(extent.columns.start / width);
                columns.1 = columns.1.max(extent.columns.end.div_ceil(width));
                rows.0 = rows.0.min(extent.rows.start / height);
                rows.1 = rows.1.max(extent.rows.end.div_ceil(height));
            }
        }
        Ok(Self {
            target,
            parts,
            across: scan.mcus.0,
            columns: columns.0..columns.1.min(scan.mcus.0),
            rows: rows.0..rows.1.min(scan.mcus.1),
            restart_interval: tables.restart_interval,
            is_only,
        })
    }

    /// Makes room for the samples.
    pub(crate) fn make_room(&self, buffers: &mut ScanBuffers) {
        // Pixels of a row of MCUs depend on that row, and on the one before or after it.
        let most = if self.is_only { 2 } else { usize::MAX };
        let rows = self.rows.start..self.rows.start + self.rows.len().min(most);
        for part in self.parts.iter().filter(|p| p.is_needed) {
            let ScanComponent { index, h, v, .. } = part.component;
            buffers.planes[index].reset(&self.columns, &rows, (h, v));
        }
    }

    /// Number of segments that the needed rows span.
    pub(crate) fn segments(&self) -> usize {
        let mcus = self.rows.end * self.across;
        match self.restart_interval {
            0 => 1,
            interval => mcus.div_ceil(interval),
        }
    }

    /// Decodes the needed MCUs. `write` is called as soon as rows are there, if the scan is the only
    /// one. Returns true if data is damaged.
    pub(crate) fn run(
        &self,
        simd: InstructionSet,
        tables: &TableCache,
        buffers: &mut ScanBuffers,
        write: Option<WriteRows<'_>>,
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if simd.level() >= Level::Avx2 {
            // SAFETY: a set at this level exists only where the machine has AVX2 and BMI.
            return unsafe { self.run_bmi(simd, tables, buffers, write) };
        }
        self.run_rows(simd, tables, buffers, write)
    }

    /// As [`Self::run_rows`], with shifts that need no fixed register.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_bmi(
        &self,
        simd: InstructionSet,
        tables: &TableCache,
        buffers: &mut ScanBuffers,
        write: Option<WriteRows<'_>>,
    ) -> bool {
        self.run_rows(simd, tables, buffers, write)
    }

    #[inline(always)]
    fn run_rows(
        &self,
        simd: InstructionSet,
        tables: &TableCache,
        buffers: &mut ScanBuffers,
        mut write: Option<WriteRows<'_>>,
    ) -> bool {
        let ScanBuffers {
            coded,
            tail,
            planes,
        } = buffers;
        let mut reader = SegmentReader::new(&[], std::mem::take(tail));
        let tables: Vec<Coders<'_>> = { self.parts.iter() }
            .map(|part| (tables.get(part.dc), tables.get(part.ac)))
            .collect();
        let mut predictions = [0; MAX_COMPONENTS];
        let interval = match self.restart_interval {
            0 => usize::MAX,
            interval => interval,
        };
        // Segments are independent, so those before the needed rows are not read.
        let first = self.rows.start * self.across + self.columns.start;
        let mut mcu = first / interval * interval;
        let mut left = 0;
        let first_row = mcu / self.across;
        for row in first_row..self.rows.end {
            let is_needed = row >= self.rows.start;
            if is_needed {
                for part in self.parts.iter().filter(|p| p.is_needed) {
                    planes[part.component.index].clear_coefficients();
                }
            }
            let is_last = row + 1 == self.rows.end;
            let columns = if is_last {
                self.columns.end
            } else {
                self.across
            };
            while mcu < row * self.across + columns {
                if left == 0 {
                    reader.restart(coded.segment(mcu / interval));
                    predictions = [0; MAX_COMPONENTS];
                    left = interval;
                }
                let column = mcu - row * self.across;
                if is_needed && self.columns.contains(&column) {
                    let column = column - self.columns.start;
                    self.decode_mcu(&mut reader, &tables, column, &mut predictions, planes);
                } else {
                    self.skip_mcu(&mut reader, &tables, &mut predictions);
                }
                left -= 1;
                mcu += 1;
            }
            if is_needed {
                for part in self.parts.iter().filter(|p| p.is_needed) {
                    let plane = &mut planes[part.component.index];
                    let row = row - self.rows.start;
                    plane.transform(simd, row, part.component.v, &part.quantization);
                }
                if let Some(write) = &mut write {
                    write(planes, self.ready(row));
                }
            }
        }
        let is_damaged = reader.bits.is_damaged;
        *tail = reader.into_buffer();
        is_damaged
    }

    /// Decodes an MCU in a column, counted from the first needed one.
    #[inline(always)]
    fn decode_mcu(
        &self,
        reader: &mut SegmentReader<'_>,
        tables: &[Coders<'_>],
        column: usize,
        predictions: &mut [i16; MAX_COMPONENTS],
        planes: &mut [Plane; MAX_COMPONENTS],
    ) {
        for ((part, coders), prediction) in self.parts.iter().zip(tables).zip(predictions) {
            let ScanComponent { index, h, v, .. } = part.component;
            if !part.is_needed {
                for _ in 0..h * v {
                    reader.skip(*coders, prediction);
                }
                continue;
            }
            let plane = &mut planes[index];
            let across = self.columns.len() * h;
            for y in 0..v {
                for x in 0..h {
                    let at = y * across + column * h + x;
                    let block = &mut plane.coefficients[at];
                    plane.flat[at] = reader.block(*coders, prediction, block);
                }
            }
        }
    }

    /// Passes over an MCU.
    #[inline(always)]
    fn skip_mcu(
        &self,
        reader: &mut SegmentReader<'_>,
        tables: &[Coders<'_>],
        predictions: &mut [i16; MAX_COMPONENTS],
    ) {
        for ((part, coders), prediction) in self.parts.iter().zip(tables).zip(predictions) {
            for _ in 0..part.component.h * part.component.v {
                reader.skip(*coders, prediction);
            }
        }
    }

    /// Number of the region's rows whose samples are there after a row of MCUs.
    fn ready(&self, row: usize) -> usize {
        let region = self.target.region;
        if row + 1 == self.rows.end {
            return region.height;
        }
        let is_ready = |y: usize| {
            self.parts.iter().all(|part| {
                let extent = self.target.extents.get(part.component.index);
                extent.is_none_or(|e| e.last_row(y) < (row + 1) * part.component.v * 8)
            })
        };
        let pixels = 8 * self.target.header.max_v;
        let mut end = ((row + 1) * pixels).clamp(region.y, region.y + region.height);
        while end > region.y && !is_ready(end - 1) {
            end -= 1;
        }
        end - region.y
    }
}
