//! A scan of whole coefficients: entropy decoding and inverse DCT, one row of MCUs at a time.

use arrayvec::ArrayVec;

use crate::buffers::ScanBuffers;
use crate::error::HeaderError;
use crate::format::Target;
use crate::header::{DecodingTables, MAX_COMPONENTS};
use crate::huffman::Coders;
use crate::idct::CoefficientBlock;
use crate::mcu_reader::McuReader;
use crate::mcu_runs::{McuWindow, ScanSource};
use crate::plane::Plane;
use crate::scan::{ScanComponent, ScanHeader, TableCache};
use crate::simd::{InstructionSet, Level};

/// Called with the planes and the number of the region's rows whose samples are there.
pub(crate) type WriteRows<'a> = &'a mut dyn FnMut(&[Plane; MAX_COMPONENTS], usize);

/// The outcome of a scan's decoding.
#[derive(Debug)]
pub(crate) struct DecodedScan {
    pub(crate) is_damaged: bool,
    /// Byte offset of the marker after the data, if it was decoded without an index.
    pub(crate) end: usize,
}

/// The decoding of one scan.
#[derive(Debug)]
pub(crate) struct SequentialScan<'a> {
    target: &'a Target<'a>,
    parts: ArrayVec<ScanPart, MAX_COMPONENTS>,
    window: McuWindow,
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
        let mut parts = ArrayVec::new();
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
            window: McuWindow {
                across: scan.mcus.0,
                columns: columns.0..columns.1.min(scan.mcus.0),
                rows: rows.0..rows.1.min(scan.mcus.1),
                interval: match tables.restart_interval {
                    0 => usize::MAX,
                    interval => interval,
                },
            },
            is_only,
        })
    }

    /// Makes room for the samples.
    pub(crate) fn make_room(&self, buffers: &mut ScanBuffers) {
        // Pixels of a row of MCUs depend on that row, and on the one before or after it.
        let most = if self.is_only { 2 } else { usize::MAX };
        let rows =
            self.window.rows.start..self.window.rows.start + self.window.rows.len().min(most);
        for part in self.parts.iter().filter(|p| p.is_needed) {
            let ScanComponent { index, h, v, .. } = part.component;
            buffers.planes[index].reset(&self.window.columns, &rows, (h, v));
        }
    }

    /// Decodes the needed MCUs. `write` is called as soon as rows are there, if the scan is the only
    /// one.
    pub(crate) fn run(
        &self,
        simd: InstructionSet,
        source: ScanSource<'_>,
        tables: &TableCache,
        buffers: &mut ScanBuffers,
        write: Option<WriteRows<'_>>,
    ) -> DecodedScan {
        #[cfg(target_arch = "x86_64")]
        if simd.level() >= Level::Avx2 {
            // SAFETY: a set at this level exists only where the machine has AVX2 and BMI.
            return unsafe { self.run_bmi(simd, source, tables, buffers, write) };
        }
        self.run_rows(simd, source, tables, buffers, write)
    }

    /// As [`Self::run_rows`], with shifts that need no fixed register.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_bmi(
        &self,
        simd: InstructionSet,
        source: ScanSource<'_>,
        tables: &TableCache,
        buffers: &mut ScanBuffers,
        write: Option<WriteRows<'_>>,
    ) -> DecodedScan {
        self.run_rows(simd, source, tables, buffers, write)
    }

    #[inline(always)]
    fn run_rows(
        &self,
        simd: InstructionSet,
        mut source: ScanSource<'_>,
        tables: &TableCache,
        buffers: &mut ScanBuffers,
        mut write: Option<WriteRows<'_>>,
    ) -> DecodedScan {
        let ScanBuffers {
            coded,
            tail,
            planes,
        } = buffers;
        let tables: ArrayVec<Coders<'_>, MAX_COMPONENTS> = { self.parts.iter() }
            .map(|part| (tables.get(part.dc), tables.get(part.ac)))
            .collect();
        let mut decoded = DecodedScan {
            is_damaged: false,
            end: source.start,
        };
        let mut row = self.window.rows.start;
        while let Some(run) = self.window.run(row, source.index.as_deref()) {
            row = run.rows.end;
            let recorder;
            (decoded.end, recorder) = source.take(&self.window, &run, coded);
            let buffer = std::mem::take(tail);
            let mut mcus = McuReader::new(&self.window, &run, coded, recorder, buffer);
            for row in run.rows {
                for part in self.parts.iter().filter(|p| p.is_needed) {
                    planes[part.component.index].clear_coefficients();
                }
                while mcus.mcu() < self.window.first(row) {
                    mcus.next();
                    self.skip_mcu(&mut mcus, &tables);
                }
                for column in 0..self.window.columns.len() {
                    mcus.next();
                    self.decode_mcu(&mut mcus, &tables, column, planes);
                }
                for part in self.parts.iter().filter(|p| p.is_needed) {
                    let plane = &mut planes[part.component.index];
                    let row = row - self.window.rows.start;
                    plane.transform(simd, row, part.component.v, &part.quantization);
                }
                if let Some(write) = &mut write {
                    write(planes, self.ready(row));
                }
            }
            decoded.is_damaged |= mcus.segment.bits.is_damaged;
            *tail = mcus.segment.into_buffer();
        }
        decoded
    }

    /// Decodes an MCU in a column, counted from the first needed one.
    #[inline(always)]
    fn decode_mcu(
        &self,
        mcus: &mut McuReader<'_>,
        tables: &[Coders<'_>],
        column: usize,
        planes: &mut [Plane; MAX_COMPONENTS],
    ) {
        let parts = self.parts.iter().zip(tables).zip(&mut mcus.predictions);
        for ((part, coders), prediction) in parts {
            let ScanComponent { index, h, v, .. } = part.component;
            if !part.is_needed {
                for _ in 0..h * v {
                    mcus.segment.skip(*coders, prediction);
                }
                continue;
            }
            let plane = &mut planes[index];
            let across = self.window.columns.len() * h;
            for y in 0..v {
                for x in 0..h {
                    let at = y * across + column * h + x;
                    let block = &mut plane.coefficients[at];
                    plane.flat[at] = mcus.segment.block(*coders, prediction, block);
                }
            }
        }
    }

    /// Passes over an MCU.
    #[inline(always)]
    fn skip_mcu(&self, mcus: &mut McuReader<'_>, tables: &[Coders<'_>]) {
        let parts = self.parts.iter().zip(tables).zip(&mut mcus.predictions);
        for ((part, coders), prediction) in parts {
            for _ in 0..part.component.h * part.component.v {
                mcus.segment.skip(*coders, prediction);
            }
        }
    }

    /// Number of the region's rows whose samples are there after a row of MCUs.
    fn ready(&self, row: usize) -> usize {
        let region = self.target.region;
        if row + 1 == self.window.rows.end {
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
