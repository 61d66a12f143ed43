//! Regions of pixels, and the samples and blocks that they depend on.

use std::ops::Range;

use crate::header::{Component, JpegHeader};
use crate::upsample::Upsampling;

/// A rectangle of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PixelRegion {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Number of columns, at least 1.
    pub width: usize,
    /// Number of rows, at least 1.
    pub height: usize,
}

impl PixelRegion {
    /// Returns the region of all pixels.
    pub const fn whole(header: &JpegHeader) -> Self {
        Self {
            x: 0,
            y: 0,
            width: header.width(),
            height: header.height(),
        }
    }

    /// True if the region has pixels, all of which are in the image.
    pub const fn is_within(&self, header: &JpegHeader) -> bool {
        self.width > 0
            && self.height > 0
            && self.x < header.width()
            && self.y < header.height()
            && self.width <= header.width() - self.x
            && self.height <= header.height() - self.y
    }
}

/// The part of a component that a region depends on.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    pub(crate) upsampling: Upsampling,
    /// Pixels that a sample covers along rows and columns.
    pub(crate) factors: (usize, usize),
    /// Columns and rows of samples.
    pub(crate) columns: Range<usize>,
    pub(crate) rows: Range<usize>,
}

impl Extent {
    /// Returns the part of a component.
    pub(crate) fn of(header: &JpegHeader, component: &Component, region: &PixelRegion) -> Self {
        let factors = (header.max_h / component.h, header.max_v / component.v);
        let upsampling = Upsampling::of(factors.0, factors.1, component.width);
        let (across, down) = upsampling.reach();
        Self {
            upsampling,
            factors,
            columns: covered(region.x, region.width, factors.0, across, component.width),
            rows: covered(region.y, region.height, factors.1, down, component.height),
        }
    }

    /// Returns the last row of samples that a row of pixels depends on.
    pub(crate) fn last_row(&self, y: usize) -> usize {
        let row = y / self.factors.1 + self.upsampling.reach().1;
        row.min(self.rows.end - 1)
    }
}

/// Returns the samples that pixels depend on.
fn covered(start: usize, length: usize, factor: usize, reach: usize, limit: usize) -> Range<usize> {
    let first = (start / factor).saturating_sub(reach);
    let last = (start + length - 1) / factor + reach;
    first..(last + 1).min(limit)
}
