//! Samples and coefficients of a component.

use std::ops::Range;

use crate::idct::{self, CoefficientBlock, SampleTarget};
use crate::region::Extent;
use crate::simd::InstructionSet;

/// The samples of a component, and the coefficients of one row of MCUs.
#[derive(Debug, Default)]
pub(crate) struct Plane {
    /// Coefficients of the blocks, row by row.
    pub(crate) coefficients: Vec<CoefficientBlock>,
    /// True for each block without AC coefficients.
    pub(crate) flat: Vec<bool>,
    samples: Vec<u8>,
    /// Number of samples in a row.
    stride: usize,
    /// Number of rows; each row takes the place of the one that many rows before.
    height: usize,
    /// Column and row of the first sample.
    origin: (usize, usize),
}

impl Plane {
    /// Makes room for the samples of these columns and rows of MCUs, of which each has `h` x `v`
    /// blocks, and for the coefficients of one row of MCUs.
    pub(crate) fn reset(
        &mut self,
        columns: &Range<usize>,
        rows: &Range<usize>,
        (h, v): (usize, usize),
    ) {
        self.stride = columns.len() * h * 8;
        self.height = rows.len() * v * 8;
        self.origin = (columns.start * h * 8, rows.start * v * 8);
        let blocks = columns.len() * h * v;
        self.coefficients.resize(blocks, [0; 64]);
        self.flat.resize(blocks, false);
        self.samples.resize(self.stride * self.height, 0);
    }

    /// Makes the samples gray, as those of blocks without coefficients.
    pub(crate) fn clear(&mut self, extent: &Extent) {
        self.stride = extent.columns.len();
        self.height = extent.rows.len();
        self.origin = (extent.columns.start, extent.rows.start);
        self.samples.clear();
        self.samples.resize(self.stride * self.height, 128);
    }

    /// Removes the coefficients.
    pub(crate) fn clear_coefficients(&mut self) {
        self.coefficients.fill([0; 64]);
        self.flat.fill(true);
    }

    /// Computes the samples of a row of MCUs, counted from the first one, from its coefficients.
    pub(crate) fn transform(
        &mut self,
        simd: InstructionSet,
        row: usize,
        v: usize,
        quantization: &CoefficientBlock,
    ) {
        let across = self.stride / 8;
        for block_row in 0..v {
            let y = (row * v + block_row) * 8 % self.height;
            let blocks = block_row * across..(block_row + 1) * across;
            let mut rows = SampleTarget {
                samples: &mut self.samples[y * self.stride..(y + 8) * self.stride],
                stride: self.stride,
            };
            let flat = &self.flat[blocks.clone()];
            idct::blocks(
                simd,
                &self.coefficients[blocks],
                flat,
                quantization,
                &mut rows,
            );
        }
    }

    /// Returns samples of a row.
    pub(crate) fn row(&self, y: usize, columns: Range<usize>) -> &[u8] {
        let at = (y - self.origin.1) % self.height * self.stride;
        let columns = columns.start - self.origin.0..columns.end - self.origin.0;
        &self.samples[at..at + self.stride][columns]
    }

    /// Number of bytes of the buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.samples.capacity() + self.coefficients.capacity() * size_of::<CoefficientBlock>()
    }
}
