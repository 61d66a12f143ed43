//! The samples that a decoder writes, and the part of a file that they need.

use arrayvec::ArrayVec;

use crate::error::HeaderError;
use crate::header::{ColorModel, JpegHeader, MAX_COMPONENTS};
use crate::region::{Extent, PixelRegion};

/// The samples that a decoder writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// Red, green and blue, interleaved. Files of [`ColorModel::Gray`] have three equal samples; inks
    /// become colors as in Pillow, which takes them as inverted (Adobe's convention).
    Rgb,
    /// The stored luma alone; for files of [`ColorModel::Gray`] and [`ColorModel::YCbCr`].
    Luma,
    /// The stored components, upsampled and interleaved, without a change of their color model.
    Components,
}

impl PixelFormat {
    /// Number of samples of a pixel.
    pub fn channels(self, header: &JpegHeader) -> usize {
        match self {
            Self::Rgb => 3,
            Self::Luma => 1,
            Self::Components => header.components.len(),
        }
    }
}

/// A finding about the entropy-coded data that was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Decoded {
    /// True if the data was damaged: a code was invalid, a block had too many coefficients, or data
    /// was missing.
    pub is_damaged: bool,
}

/// The part of the frame that is decoded.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) header: &'a JpegHeader,
    pub(crate) region: PixelRegion,
    pub(crate) output: PixelFormat,
    /// Parts of the components that are needed; the rest is passed over.
    pub(crate) extents: ArrayVec<Extent, MAX_COMPONENTS>,
}

impl<'a> Target<'a> {
    /// Creates the target of a region. `length` is the number of samples that are asked for.
    pub(crate) fn new(
        header: &'a JpegHeader,
        region: PixelRegion,
        output: PixelFormat,
        length: usize,
    ) -> Result<Self, HeaderError> {
        let size = region.width.checked_mul(region.height);
        let size = size.and_then(|s| s.checked_mul(output.channels(header)));
        if !region.is_within(header) || size != Some(length) {
            return Err(HeaderError::Invalid("region"));
        }
        let has_luma = matches!(header.color(), ColorModel::Gray | ColorModel::YCbCr);
        let needed = match output {
            PixelFormat::Luma if has_luma => 1,
            PixelFormat::Luma => {
                return Err(HeaderError::Unsupported(
                    "the luma of a JPEG that stores none",
                ));
            }
            PixelFormat::Rgb | PixelFormat::Components => header.components.len(),
        };
        let extent = |c| Extent::of(header, c, &region);
        Ok(Self {
            header,
            region,
            output,
            extents: header.components[..needed].iter().map(extent).collect(),
        })
    }
}
