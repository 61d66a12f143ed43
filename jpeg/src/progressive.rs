//! Progressive scans, which refine the coefficients of the whole image (ITU-T T.81, annex G).
//!
//! Pixels are computed after the last scan. Where scans are missing, libjpeg smooths blocks; here,
//! missing bits are zeros.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::bits::BitReader;
use crate::error::HeaderError;
use crate::header::{DecodingTables, JpegHeader, MAX_COMPONENTS, NATURAL_ORDER};
use crate::huffman::SymbolTable;
use crate::idct::CoefficientBlock;
use crate::plane::Plane;
use crate::region::Extent;
use crate::scan::{Band, ScanComponent, ScanHeader};
use crate::segments::{CodedData, SegmentReader};
use crate::simd::InstructionSet;

/// The coefficients of a component.
#[derive(Debug, Default)]
pub(crate) struct CoefficientPlane {
    pub(crate) blocks: Vec<CoefficientBlock>,
    /// Number of blocks in a row.
    pub(crate) across: usize,
}

impl CoefficientPlane {
    /// Makes room for the blocks of all MCUs.
    pub(crate) fn reset(&mut self, header: &JpegHeader, index: usize) {
        self.blocks.clear();
        let Some(component) = header.components.get(index) else {
            return;
        };
        let (columns, rows) = header.mcus();
        self.across = columns * component.h;
        self.blocks
            .resize(self.across * rows * component.v, [0; 64]);
    }

    /// Computes the samples that a region depends on.
    pub(crate) fn transform(
        &self,
        simd: InstructionSet,
        extent: &Extent,
        quantization: &CoefficientBlock,
        plane: &mut Plane,
    ) {
        let blocks = |samples: &Range<usize>| samples.start / 8..samples.end.div_ceil(8);
        let (columns, rows) = (blocks(&extent.columns), blocks(&extent.rows));
        plane.reset(&columns, &rows, (1, 1));
        for row in rows.clone() {
            let at = row * self.across;
            let source = &self.blocks[at + columns.start..at + columns.end];
            plane.coefficients.copy_from_slice(source);
            for (flat, block) in plane.flat.iter_mut().zip(source) {
                *flat = block[1..] == [0; 63];
            }
            plane.transform(simd, row - rows.start, 1, quantization);
        }
    }

    /// Number of bytes of the buffer.
    pub(crate) const fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<CoefficientBlock>()
    }
}

/// The decoding of one scan.
#[derive(Debug)]
pub(crate) struct ProgressiveScan<'a> {
    components: &'a [ScanComponent],
    mcus: (usize, usize),
    band: Band,
    /// Tables of DC differences of the components, or the table of AC coefficients.
    tables: ArrayVec<SymbolTable, MAX_COMPONENTS>,
    restart_interval: usize,
}

impl<'a> ProgressiveScan<'a> {
    /// Creates the decoding of a scan.
    pub(crate) fn new(scan: &'a ScanHeader, tables: &DecodingTables) -> Result<Self, HeaderError> {
        Ok(Self {
            components: &scan.components,
            mcus: scan.mcus,
            band: scan.band()?,
            tables: scan.symbol_tables(tables)?,
            restart_interval: tables.restart_interval,
        })
    }

    /// Number of segments of the scan.
    pub(crate) const fn segments(&self) -> usize {
        match self.restart_interval {
            0 => 1,
            interval => (self.mcus.0 * self.mcus.1).div_ceil(interval),
        }
    }

    /// Decodes the scan into the planes, and returns true if its data is damaged. The buffer of a
    /// reader is taken and given back.
    pub(crate) fn decode(
        &self,
        coded: &CodedData,
        tail: &mut Vec<u8>,
        planes: &mut [CoefficientPlane],
    ) -> bool {
        let mut reader = SegmentReader::new(&[], 0, std::mem::take(tail));
        let interval = match self.restart_interval {
            0 => usize::MAX,
            interval => interval,
        };
        let mut predictions = [0; MAX_COMPONENTS];
        let mut zero_blocks = 0;
        let (across, down) = self.mcus;
        for mcu in 0..across * down {
            if mcu % interval == 0 {
                reader.restart(coded.segment(mcu / interval));
                predictions = [0; MAX_COMPONENTS];
                zero_blocks = 0;
            }
            let (row, column) = (mcu / across, mcu % across);
            for (i, component) in self.components.iter().enumerate() {
                let plane = &mut planes[component.index];
                for v in 0..component.v {
                    for h in 0..component.h {
                        let at = (row * component.v + v) * plane.across + column * component.h + h;
                        let block = &mut plane.blocks[at];
                        reader.read_any(|bits, data| {
                            let mut bits = BandReader { bits, data };
                            match (self.band.start, self.band.high) {
                                (0, 0) => {
                                    let difference = bits.difference(&self.tables[i]);
                                    predictions[i] = difference.wrapping_add(predictions[i]);
                                    block[0] = predictions[i] << self.band.low;
                                }
                                (0, _) => block[0] |= (bits.take(1) as i16) << self.band.low,
                                (_, 0) => {
                                    bits.first(&self.tables[0], self.band, &mut zero_blocks, block)
                                }
                                _ => {
                                    bits.refine(&self.tables[0], self.band, &mut zero_blocks, block)
                                }
                            }
                        });
                    }
                }
            }
        }
        let is_damaged = reader.bits.is_damaged;
        *tail = reader.into_buffer();
        is_damaged
    }
}

/// Reads the coefficients of blocks.
struct BandReader<'a> {
    bits: &'a mut BitReader,
    data: &'a [u8],
}

impl BandReader<'_> {
    fn take(&mut self, count: u32) -> u32 {
        self.bits.take(self.data, count)
    }

    fn symbol(&mut self, table: &SymbolTable) -> u8 {
        self.bits.symbol(self.data, table)
    }

    fn difference(&mut self, table: &SymbolTable) -> i16 {
        let size = u32::from(self.symbol(table) & 15);
        self.bits.value(self.data, size)
    }

    /// Returns the number of blocks without further coefficients that a symbol names.
    fn zero_blocks(&mut self, run: u8) -> u32 {
        (1 << run) + self.take(u32::from(run))
    }

    /// Reads the first bits of AC coefficients (G.1.2.2).
    fn first(
        &mut self,
        table: &SymbolTable,
        band: Band,
        zero_blocks: &mut u32,
        block: &mut CoefficientBlock,
    ) {
        if *zero_blocks > 0 {
            *zero_blocks -= 1;
            return;
        }
        let mut k = band.start;
        while k <= band.end {
            let symbol = self.symbol(table);
            let (run, size) = (symbol >> 4, symbol & 15);
            if size == 0 && run < 15 {
                *zero_blocks = self.zero_blocks(run) - 1;
                return;
            }
            k += usize::from(run);
            if size > 0 {
                let value = self.bits.value(self.data, u32::from(size));
                block[place(k)] = value << band.low;
            }
            k += 1;
        }
    }

    /// Reads a further bit of AC coefficients (G.1.2.3).
    fn refine(
        &mut self,
        table: &SymbolTable,
        band: Band,
        zero_blocks: &mut u32,
        block: &mut CoefficientBlock,
    ) {
        let mut k = band.start;
        while *zero_blocks == 0 && k <= band.end {
            let symbol = self.symbol(table);
            let (mut run, size) = (symbol >> 4, symbol & 15);
            let mut value = 0;
            if size > 0 {
                let bit = 1i16 << band.low;
                value = if self.take(1) == 1 { bit } else { -bit };
            } else if run < 15 {
                *zero_blocks = self.zero_blocks(run);
                break;
            }
            // The run counts coefficients that are still zero; others get a bit on the way.
            while k <= band.end {
                let coefficient = &mut block[place(k)];
                if *coefficient != 0 {
                    self.correct(band, coefficient);
                } else if run == 0 {
                    break;
                } else {
                    run -= 1;
                }
                k += 1;
            }
            if value != 0 {
                block[place(k)] = value;
            }
            k += 1;
        }
        if *zero_blocks > 0 {
            for k in k..=band.end {
                let coefficient = &mut block[place(k)];
                if *coefficient != 0 {
                    self.correct(band, coefficient);
                }
            }
            *zero_blocks -= 1;
        }
    }

    /// Reads a bit of a coefficient that is not zero.
    fn correct(&mut self, band: Band, coefficient: &mut i16) {
        let bit = 1i16 << band.low;
        if self.take(1) == 1 && *coefficient & bit == 0 {
            let step = if *coefficient >= 0 { bit } else { -bit };
            *coefficient = coefficient.wrapping_add(step);
        }
    }
}

/// Returns the place of a coefficient in its block. A run that passes the end of the band sets the
/// coefficient behind it, or the last one, as in libjpeg-turbo.
const fn place(k: usize) -> usize {
    if k < 64 {
        NATURAL_ORDER[k] as usize
    } else {
        63
    }
}
